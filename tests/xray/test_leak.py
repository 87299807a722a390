"""Leak mass: exactly zero in clean runs, at the expected rows in broken ones, and what a layer's own numbers say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.decoding.run_settings import RunSettings
from engine.decoding.session import run
from engine.oracle import Oracle
from engine.trace import Trace, open_trace
from engine.xray import XRayError
from engine.xray.history import committed_tokens
from engine.xray.leak import Leak, Place, leak_of
from tests.decoding.tiny_target import tiny_target

TARGET = tiny_target()
PROMPTS = ("Hello there", "Good evening, everybody")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory):
    """``recorded(fault)`` is a recording of two requests with a fault, or without one."""
    folder, made = tmp_path_factory.mktemp("leak"), {}

    def record(fault: str | None, topk: int = 2) -> Trace:
        if (fault, topk) not in made:
            settings = RunSettings(
                PROMPTS,
                model="tiny",
                drafter="oracle",
                budget=9,
                block_size=4,
                topk=topk,
                max_new_tokens=12,
                fault=fault,
            )
            path = Path(folder) / f"{fault}-{topk}.ddtree.arrow"
            list(run(settings, TARGET, trace_path=path))
            made[fault, topk] = open_trace(path)
        return made[fault, topk]

    return record


def leak(trace: Trace, number: int) -> Leak:
    step = trace.step(number)
    return leak_of(step, committed_tokens(trace, step.step, step.rank), TARGET.model)


def test_a_clean_run_leaks_exactly_nothing(recorded) -> None:
    trace = recorded(None)
    for number in range(len(trace)):
        found = leak(trace, number)
        assert not found.leaks
        assert (found.mass[:, :, found.real] == 0).all()
        assert (found.logit_change == 0).all()
        assert found.choices_kept == found.real.sum()


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ("padding-leak", Place.PADDING),
        ("sibling-leak", Place.NOT_AN_ANCESTOR),
        ("verify-width", Place.OTHER_REQUEST),
        ("stale-kv-indices", Place.REPEATED),
    ],
)
def test_a_fault_leaks_where_it_says(recorded, fault: str, place: Place) -> None:
    trace = recorded(fault, topk=1 if fault == "padding-leak" else 2)  # a chain leaves rows over
    found = [leak(trace, number) for number in range(len(trace))]
    leaking = [each for each in found if each.leaks]
    assert leaking
    assert any(each.mass[..., each.real, place].sum() > 0 for each in leaking)
    for each in found:  # rows that nobody writes, and padding, choose nothing
        assert (each.logit_change[~(each.real & each.written)] == 0).all()
    if fault != "verify-width":
        for each in leaking:
            others = [other for other in Place if other is not place]
            assert (each.mass[:, :, each.real][..., others] == 0).all()
            assert each.logit_change.max() > 0


def test_a_slot_of_nobody_is_stale(recorded) -> None:
    trace = recorded(None)
    step = trace.step(1)
    slots = step.inputs.kv_indices.copy()
    slots[3] = slots.max() + 999
    history = committed_tokens(trace, step.step, step.rank)
    found = leak_of(
        replace(step, inputs=replace(step.inputs, kv_indices=slots)), history, TARGET.model
    )
    of_first = found.real & (found.request == 0)
    assert (found.mass[:, :, of_first, Place.STALE_SLOT] > 0).all()
    assert (found.total[:, :, found.real & ~of_first] == 0).all()
    assert (found.logit_change[of_first] > 0).all()


def test_the_rows_that_leak_are_those_of_the_mask(recorded) -> None:
    trace = recorded("sibling-leak")
    for number in range(len(trace)):
        step, found = trace.step(number), leak(trace, number)
        oracle = Oracle(step)
        cells, expected = step.inputs.custom_mask, np.zeros(len(found.real), np.bool_)
        geometry = oracle.geometry
        for i in range(step.raw_bs):
            first, stride = int(geometry.mask_indptr[i]), int(geometry.strides[i])
            for row in range(oracle.num_verified(i)):
                start = first + row * stride
                extra = cells[start : start + stride] > oracle.intended(i).cells[row]
                expected[int(geometry.qo_indptr[i]) + row] = extra.any()
        assert np.array_equal((found.total > 0).any(axis=(0, 1)) & found.real, expected)


def test_the_first_layers_mass_is_the_softmax_over_what_its_row_sees(recorded) -> None:
    """The first layer's queries and keys don't depend on any mask: they are taken from a pass without attention."""
    trace = recorded("sibling-leak")
    step = next(s for s in map(trace.step, range(len(trace))) if leak(trace, s.step).leaks)
    history = committed_tokens(trace, step.step, step.rank)
    found, oracle = leak(trace, step.step), Oracle(step)
    prefix, rows = len(history[0]), int(oracle.q_lens[0])
    ids = [*history[0], *step.inputs.input_ids[:rows]]
    positions = [*range(prefix), *step.inputs.positions[:rows]]
    taken = {}

    def attention(layer, q, k, v):
        taken.setdefault(layer, (q.double(), k.double()))
        return torch.zeros_like(q)

    TARGET.model(torch.tensor(ids), torch.tensor(positions), attention)
    q, k = taken[0]
    visible = step.inputs.custom_mask[: rows * (prefix + rows)].reshape(rows, -1).astype(bool)
    intended = oracle.intended(0).cells.astype(bool)
    for row in range(oracle.num_verified(0)):
        for head in range(q.shape[1]):
            scores = k[:, head // (q.shape[1] // k.shape[1])] @ q[prefix + row, head]
            weights = np.exp(scores.numpy() / q.shape[2] ** 0.5) * visible[row]
            wrong = weights[~intended[row]].sum() / weights.sum()
            assert found.total[0, head, row] == pytest.approx(wrong, abs=1e-5)


def test_what_cannot_be_run_again_is_refused(recorded) -> None:
    trace = recorded(None)
    step = trace.step(1)
    history = committed_tokens(trace, step.step, step.rank)
    with pytest.raises(XRayError, match=r"^positions: expected 20 rows, found none$"):
        leak_of(replace(step, inputs=replace(step.inputs, positions=None)), history, TARGET.model)
    with pytest.raises(XRayError, match=r"^tokens of r0: expected ids 0 … 49, found 900; is it"):
        leak_of(step, [[900] * len(history[0]), history[1]], TARGET.model)
    example = open_trace("fixtures/example.jsonl")
    with pytest.raises(XRayError, match=r"^prompts: expected the token ids of r0's prompt, found"):
        committed_tokens(example, 0, 0)
