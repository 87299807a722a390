"""Steps of all batch sizes, from the drafter's hidden states to its cache, beside the eager way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.graphs.capture import Capture, in_one_pool
from engine.sglang.ddtree import worker
from engine.sglang.ddtree.accept import accept
from engine.sglang.ddtree.step_graphs import StepGraphs
from tests.sglang.ddtree.recording import Recording
from tests.sglang.ddtree.test_ahead import FEATURES, POSITIONS, SLOTS, Cache
from tests.sglang.ddtree.test_treed import HIDDEN, OPTIONS, inputs, maker, parts, same

WIDTH = OPTIONS.target_width
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


def step_graphs(
    sizes: list[int], capture: Capture, device: str = "cpu", cache: Cache | None = None
) -> StepGraphs:
    projection = torch.zeros(HIDDEN, FEATURES, device=device)
    return StepGraphs(sizes, maker(device), cache, OPTIONS, projection, capture)  # type: ignore[arg-type]


def check(sizes: list[int], counts: list[int], capture: Capture, device: str) -> None:
    """Steps of ``counts`` requests on graphs of ``sizes``."""
    make, cache = maker(device), Cache(device)
    graphs = step_graphs(sizes, capture, device, cache)
    assert torch.equal(cache.kept[1:], Cache(device).kept[1:])
    generator = torch.Generator().manual_seed(4)
    for seed, count in enumerate(counts):
        given, rows = inputs(seed, count, device), count * WIDTH
        hidden = torch.randn(rows, FEATURES, generator=generator).to(device)
        slots = (torch.randperm(SLOTS - 1, generator=generator)[:rows] + 1).to(device)
        plain = make(*given)
        predict = plain.tree.tokens.roll(-1, dims=1)  # some of them are what a child proposes
        wanted = accept(plain.tree, predict, OPTIONS.steps)
        made, total = graphs.treed(*given), int(given[2].sum())
        assert same(parts(made), parts(plain))
        assert torch.equal(made.rows.custom_mask(total), plain.rows.custom_mask(total))
        ahead = graphs.ahead(given[2].cpu())
        assert (ahead is None) == (count > max(sizes))
        if ahead is None:
            continue
        before = cache.kept.clone()
        found = ahead.accept(predict, given[2], slots)
        for name in vars(wanted):
            assert torch.equal(getattr(found, name), getattr(wanted, name)), name
        ahead.append(hidden)
        assert same(parts(made), parts(plain))  # until the next step
        for i, length in enumerate(wanted.accept_length.tolist()):
            own = wanted.path[i, :length] + WIDTH * i
            before[slots[own], :FEATURES] = hidden[own]
            before[slots[own], FEATURES] = (given[2][i] + torch.arange(length).to(device)).float()
        assert torch.equal(cache.kept[1:], before[1:])  # padding went to slot 0


SIZES = st.lists(st.integers(1, 8), min_size=1, max_size=4)
COUNTS = st.lists(st.integers(1, 10), max_size=5)


@settings(deadline=None, max_examples=30)
@given(SIZES, COUNTS)
def test_batches_between_and_beyond_the_sizes(sizes: list[int], counts: list[int]) -> None:
    recording = Recording()
    check(sizes, counts, recording.capture, "cpu")
    assert recording.captures == 3 * len({*sizes})
    served = sum(count <= max(sizes) for count in counts)
    assert recording.replays == 2 * len({*sizes}) + 3 * served


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@settings(deadline=None, max_examples=10)
@given(SIZES, COUNTS)
def test_batches_in_cuda_graphs(sizes: list[int], counts: list[int]) -> None:
    check(sizes, counts, in_one_pool(), "cuda")


@pytest.mark.parametrize("device", DEVICES)
def test_large_and_small_in_turn(device: str) -> None:
    capture = Recording().capture if device == "cpu" else in_one_pool()
    check([1, 2, 4, 8], [8, 3, 7, 1, 5, 2, 6, 4, 9, 3, 8, 1], capture, device)


@pytest.mark.parametrize("device", DEVICES)
def test_captured_outside_of_inference_mode_and_used_within(device: str) -> None:
    capture = Recording().capture if device == "cpu" else in_one_pool()
    graphs = step_graphs([2], capture, device)
    given = inputs(1, 1, device)
    with torch.inference_mode():
        made = graphs.treed(*given)
    assert same(parts(made), parts(maker(device)(*given)))
    assert not made.tree.tokens.is_inference()


def test_the_largest_size_is_captured_first() -> None:
    seen: list[int] = []
    make, recording = maker(), Recording()

    def counted(*given: torch.Tensor) -> Any:
        seen.append(len(given[1]))
        return make(*given)

    projection = torch.zeros(HIDDEN, FEATURES)
    StepGraphs([2, 5, 3, 5], counted, None, OPTIONS, projection, recording.capture)
    assert list(dict.fromkeys(seen)) == [5, 3, 2]
    assert recording.captures == 3


def test_the_drafter_knows_every_position_of_a_step() -> None:
    graphs = step_graphs([2], Recording().capture, cache=Cache())
    last = POSITIONS - OPTIONS.steps
    assert graphs.ahead(torch.tensor([3, last]))
    assert graphs.ahead(torch.tensor([last + 1, 3])) is None


def test_one_line_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        step_graphs([4, 1, 2], Recording().capture)
    (line,) = caplog.messages
    assert line.startswith("Capture DDTREE cuda graphs end. Time elapsed: 0.")
    assert line.endswith("s. bs [1, 2, 4]")


def test_a_capture_that_fails_says_so_and_ends_the_start() -> None:
    recording = Recording()

    def fails(run: Callable[[], object], device: torch.device) -> Any:
        if recording.captures:
            raise MemoryError("none left")
        return recording.capture(run, device)

    with pytest.raises(
        RuntimeError, match=r"the CUDA graphs of 1 requests .* none left.*--disable-"
    ):
        step_graphs([1, 2], fails)


def test_where_there_are_graphs() -> None:
    alone, ranks = SimpleNamespace(world_size=1), SimpleNamespace(world_size=2)

    def own(device: str = "cuda", off: bool = False, runner: object = object()) -> Any:
        return SimpleNamespace(
            device=device,
            server_args=SimpleNamespace(disable_cuda_graph=off),
            model_runner=SimpleNamespace(graph_runner=runner),
        )

    assert worker.in_graphs(own(), alone)
    assert not worker.in_graphs(own(), ranks)
    assert not worker.in_graphs(own("cpu"), alone)
    assert not worker.in_graphs(own(off=True), alone)
    assert not worker.in_graphs(own(runner=None), alone)
