"""Recordings of steps on the device are clean under every check, and a tampered one is not.

Run: pytest tests/graphs/test_recorded.py
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.checks.finding import Effect
from engine.checks.registry import check_step, check_trace
from engine.decoding.accept import Sampler
from engine.decoding.engine import Engine
from engine.decoding.record import Recorder
from engine.decoding.run_settings import RunSettings
from engine.decoding.settings import Backend, EngineConfig, Graph
from engine.drafters.dflash import DFlashDrafter
from engine.graphs.recorded import RecordedEngine
from engine.step import VerifyStep
from tests.graphs.test_engine import GPU, PROMPTS, config, models


def recorded(device: str, settings: EngineConfig, family: str = "llama") -> list[VerifyStep]:
    target, drafter = models(family, device)
    engine = RecordedEngine(target, drafter, settings)
    recorder = Recorder(target, settings, "tiny")
    for number, (rid, prompt) in enumerate(PROMPTS.items()):
        engine.add(rid, prompt, 12 + 4 * number)
    steps = []
    while engine.running:
        steps.append(recorder.record(len(steps), engine.step()))
    return steps


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_recordings_are_clean(device: str, family: str) -> None:
    settings = config(
        graph=Graph.REPLAY, captured_bs=(4,), kept_candidates=16, backend=Backend.DEVICE
    )
    steps = recorded(device, settings, family)
    report = check_trace(steps)
    assert not report.findings
    assert len(report.checks) == 18  # all but ranks, recurrent commits, and the reference
    assert len(steps) > 4
    assert {step.source.captured_bs for step in steps} == {4}
    assert any(step.raw_bs < 4 for step in steps)
    accepted = [path for step in steps for path in step.outcome.accept_length.tolist()]
    assert max(accepted) > 1


def test_steps_are_recorded_as_the_eager_engine_records_them() -> None:
    """All but what tells the two apart: slots, and what holds the last steps' values."""
    settings = config(captured_bs=(1,), max_requests=1)
    target, drafter = models("llama", "cpu")
    recorder = Recorder(target, settings, "tiny")
    engines = (
        RecordedEngine(target, drafter, settings),
        Engine(target, DFlashDrafter(drafter, target, block_size=6), settings),
    )
    for engine in engines:
        engine.add("a", PROMPTS["c"], 16)
    while engines[1].running:
        left, right = (recorder.record(0, engine.step()) for engine in engines)
        for name in ("links", "commit"):
            assert_same(getattr(left, name), getattr(right, name))
        for name in ("positions", "input_ids", "mask_indptr", "custom_mask", "kv_indptr"):
            assert getattr(left.inputs, name).tolist() == getattr(right.inputs, name).tolist()
        for name in ("target_predict", "accept_length", "bonus_tokens"):
            assert getattr(left.outcome, name).tolist() == getattr(right.outcome, name).tolist()
        assert left.requests[0].tree.parents.tolist() == right.requests[0].tree.parents.tolist()


def assert_same(left: object, right: object) -> None:
    for name in left.__dataclass_fields__:  # type: ignore[attr-defined]
        assert repr(getattr(left, name)) == repr(getattr(right, name)), name


def test_a_step_stays_as_it_was() -> None:
    """Buffers are overwritten by the next step; what was handed out is not."""
    target, drafter = models("llama", "cpu")
    engine = RecordedEngine(target, drafter, config())
    engine.add("a", PROMPTS["a"], 20)
    found = engine.step()
    inputs = found.inputs
    kept = [inputs.input_ids, inputs.positions, inputs.seq_lens, inputs.out_cache_loc]
    kept += [
        inputs.attention.custom_mask,
        inputs.attention.kv_indices,
        inputs.attention.mask_indptr,
    ]
    kept += [found.logits, found.target_predict, found.links.retrieve_next_token]
    before = [part.clone() for part in kept]
    engine.step()
    for part, wanted in zip(kept, before, strict=True):
        assert torch.equal(part, wanted)


def test_a_tampered_step_is_found() -> None:
    steps = recorded("cpu", config(graph=Graph.REPLAY, captured_bs=(4,)))
    mask = steps[1].inputs.custom_mask
    assert mask is not None
    wrong = mask.copy()
    wrong[int(np.flatnonzero(wrong == 0)[0])] = 1
    steps[1] = replace(steps[1], inputs=replace(steps[1].inputs, custom_mask=wrong))
    assert [finding.check for finding in check_trace(steps).causes] == ["I8"]


def test_prefix_columns_that_the_kernel_does_not_read_are_no_wrong_text() -> None:
    """As with the address formula of the eager engine, which skips them too."""
    step = recorded("cpu", config(captured_bs=(4,), backend=Backend.DEVICE))[-1]
    mask = step.inputs.custom_mask
    assert mask is not None
    wrong = mask.copy()
    wrong[0] = 0
    step = replace(step, inputs=replace(step.inputs, custom_mask=wrong))
    alike = replace(step, source=replace(step.source, attention_backend="addressed"))
    found, wanted = ([(f.check, f.verdict, f.effect) for f in check_step(s)] for s in (step, alike))
    assert step.source.attention_backend == "device"
    assert found == wanted
    assert Effect.OUTPUT not in [effect for *_, effect in found]


def test_what_a_run_on_the_device_refuses() -> None:
    def settings(**options: object) -> RunSettings:
        return RunSettings(("x",), backend="device", **options)  # type: ignore[arg-type]

    settings()
    for name, options in (
        ("temperature", {"temperature": 0.7}),
        ("fault", {"fault": "verify-width"}),
        ("spine", {"spine": True}),
        ("max_depth", {"max_depth": 3}),
        ("drafter oracle", {"drafter": "oracle"}),
    ):
        with pytest.raises(ValueError, match=f"{name}: expected"):
            settings(**options)
    assert Sampler().temperature == 0.0
