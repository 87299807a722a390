"""What is compiled while a server starts is what its steps will call."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.sglang import attach as attaching
from engine.sglang import warm as warming
from engine.sglang.attach import attach
from engine.sglang.warm import warm
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.late import as_on_a_device
from tests.sglang.serving import Server


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (SimpleNamespace(vocab_size=40, dtype=torch.bfloat16), {torch.float32, torch.bfloat16}),
        (SimpleNamespace(vocab_size=40, dtype=torch.float32), {torch.float32}),
        (SimpleNamespace(vocab_size=40), {torch.float32}),
        (SimpleNamespace(), set()),
        (None, set()),
    ],
)
def test_each_kernel_runs_once_for_each_kind_of_logits(
    config: Any, kinds: set[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_a_device(monkeypatch)
    gathered: list[Any] = []
    monkeypatch.setattr(warming, "top2", lambda logits: seen.append(logits))
    monkeypatch.setattr("engine.sglang.host.gathering", lambda noted: gathered.append(noted))
    seen: list[torch.Tensor] = []
    warm(SimpleNamespace(model_config=config), "cpu")
    assert len(gathered) == 1
    assert {logits.dtype for logits in seen} == kinds
    assert len(seen) == len(kinds)
    assert all(logits.shape[1] == 40 for logits in seen)


def test_without_a_device_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(warming.torch, "zeros", None)
    warm(SimpleNamespace())


def test_a_kernel_that_does_not_compile_is_told_and_steps_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(scheduler: Any) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(attaching, "warm", broken)
    with double.installed() as hook_on:
        server = Server(tmp_path, attach(tmp_path, hook_on, {}))
        server.run_eager(worked.verify_input(), worked.batch())
        assert server.tap.stop is not None
        server.tap.stop()
    found = json.loads((tmp_path / "health.rank0.json").read_text())
    assert (found["steps"]["written"], found["hook_errors"]) == (1, 1)
    assert found["last_error"] == "RuntimeError: no compiler"
