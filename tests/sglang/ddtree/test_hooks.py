"""Hooks through SGLang's own registry, and the entry point."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.sglang.ddtree import hooks, plugin
from tests.sglang.ddtree.scheduled import Args
from tests.sglang.ddtree.stock import stock
from tests.sglang_wheels import sglang_folder

ROOT = Path(__file__).parents[3]


@pytest.fixture
def scheduler() -> Iterator[Any]:
    """A scheduler process: its module stands, with a validation that refuses nothing."""
    with stock(sglang_folder()):
        module = importlib.import_module(plugin.SCHEDULER)
        module.validate_dflash_request = lambda req: "DFLASH says no" if req.odd else None
        yield module


def serving(algorithm: str) -> None:
    arguments = importlib.import_module("sglang.srt.server_args")
    arguments.get_global_server_args = lambda: Args(speculative_algorithm=algorithm)


def hooked() -> Any:
    registry = importlib.import_module("sglang.srt.plugins.hook_registry").HookRegistry
    plugin.register()
    registry.apply_hooks()
    return registry


def request(odd: bool = False, **settings: Any) -> SimpleNamespace:
    return SimpleNamespace(odd=odd, sampling_params=SimpleNamespace(**settings))


def test_the_entry_point_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = project["entry-points"]["sglang.srt.plugins"]
    assert declared["ddtree-speculative"] == f"{plugin.__name__}:{plugin.register.__name__}"


def test_requests_are_refused_where_ddtree_is_served(scheduler: Any) -> None:
    serving("DDTREE")
    hooked()
    assert "(regex)" in scheduler.validate_dflash_request(request(regex="a+"))
    assert scheduler.validate_dflash_request(request(odd=True)) == "DFLASH says no"
    assert scheduler.validate_dflash_request(request()) is None


def test_another_algorithms_requests_are_left_alone(scheduler: Any) -> None:
    serving("DFLASH")
    hooked()
    assert scheduler.validate_dflash_request(request(frequency_penalty=1.0)) is None


def test_outside_of_schedulers_nothing_is_hooked() -> None:
    with stock(sglang_folder()):
        assert not hooked()._hooks


def test_where_there_is_no_registry_nothing_happens() -> None:
    with stock(sglang_folder()):
        module = importlib.import_module("sglang.srt.speculative.spec_info")
        module.SpeculativeAlgorithm = SimpleNamespace()
        plugin.register()


@pytest.mark.parametrize(("algorithm", "cells"), [("DDTREE", 4 * 5 * (100 + 5)), ("DFLASH", 2000)])
def test_the_mask_buffer_of_graphs(algorithm: str, cells: int, scheduler: Any) -> None:
    serving(algorithm)
    backend = SimpleNamespace(max_context_len=100)

    def original(self: Any, max_bs: int, max_num_tokens: int, buffer: Any = None) -> None:
        self.cuda_graph_custom_mask = torch.zeros(max_num_tokens * 100, dtype=torch.uint8)

    hooks.wide_mask(original, backend, 4, 20, buffer=None)
    assert len(backend.cuda_graph_custom_mask) == cells
    assert backend.cuda_graph_custom_mask.dtype is torch.uint8


def test_a_draft_backend_without_a_mask_buffer_is_left_alone(scheduler: Any) -> None:
    serving("DDTREE")
    backend = SimpleNamespace(max_context_len=100)
    hooks.wide_mask(lambda *args: None, backend, 4, 20)
    assert vars(backend) == {"max_context_len": 100}


def test_a_full_batch_at_the_context_limit_fits() -> None:
    width, context, requests = 17, 64, 3
    needed = sum(width * (context + width) for _ in range(requests))
    assert hooks.graph_mask_cells(requests, requests * width, context) == needed
    assert needed > requests * width * context  # what SGLang sets aside


@pytest.mark.parametrize(
    ("algorithm", "draft", "width"),
    [("DDTREE", False, 8), ("DDTREE", True, 5), ("DFLASH", False, 5)],
)
def test_the_width_is_broken_in_the_target_of_ddtree_alone(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, draft: bool, width: int
) -> None:
    monkeypatch.setenv("DDTREE_FAULT", "verify-width")
    args = Args(
        speculative_algorithm=algorithm,
        speculative_num_draft_tokens=17,
        speculative_dflash_block_size=8,
    )
    backend = SimpleNamespace()

    def original(self: Any, runner: Any) -> None:
        self.num_draft_tokens = 5

    hooks.break_width(original, backend, SimpleNamespace(server_args=args, is_draft_worker=draft))
    assert backend.num_draft_tokens == width
