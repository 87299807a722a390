"""The test of a mask by its bytes: it says the same as looking at every cell, on clean and on spoiled steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.checks import context as context_module
from engine.checks import fast_clean
from engine.checks.context import StepContext, once, once_a_step
from engine.checks.differences import MAX_TABLE, is_among
from engine.checks.fast_clean import mask_is_intended
from engine.checks.registry import Report, check_trace
from engine.checks.synthetic import Shape, synthetic_steps
from engine.layout import MaskKind, MaskView
from engine.oracle import Oracle
from engine.step import VerifyStep
from engine.trace import step_to_json
from tests.checks.build import batch, clean_steps, findings, spoil, two_steps
from tests.checks.test_robust import accepted, at, changed, paths, variants
from tests.factories import ints


def report_cell_by_cell(steps: list[VerifyStep]) -> Report:
    fast_clean.ENABLED = False
    try:
        return check_trace(steps)
    finally:
        fast_clean.ENABLED = True


def same_reports(*steps: VerifyStep) -> None:
    assert check_trace(steps) == report_cell_by_cell(list(steps))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(two_steps(), st.data())
def test_fields_changed(steps: tuple[VerifyStep, VerifyStep], data: st.DataObject) -> None:
    """Anything in a trace of two steps changed: the reports are alike in every finding, message and cell."""
    documents = [step_to_json(step) for step in steps]
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, 1))
        path = data.draw(st.sampled_from(list(paths(documents[number]))))
        value = data.draw(st.sampled_from(list(variants(at(documents[number], path)))))
        documents[number] = changed(documents[number], path, value)
    read = [accepted(document) for document in documents]
    assume(None not in read)
    same_reports(*(step for step in read if step is not None))


@given(two_steps(), st.data())
def test_mask_bytes_changed(steps: tuple[VerifyStep, VerifyStep], data: st.DataObject) -> None:
    first, second = steps
    mask = second.inputs.custom_mask.copy()
    kind = data.draw(st.sampled_from(["bytes", "end", "roll", "before", "all", "reversed"]))
    if kind == "bytes":
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(mask) - 1))
            mask[place] = data.draw(st.integers(0, 255))
    elif kind == "end":
        mask = mask[: data.draw(st.integers(0, len(mask)))]
    elif kind == "before":
        mask[: len(first.inputs.custom_mask)] = first.inputs.custom_mask[: len(mask)]
    else:
        mask = {"roll": np.roll(mask, 1), "all": mask * 0 + 1, "reversed": mask[::-1].copy()}[kind]
    same_reports(first, spoil(second, ("inputs.custom_mask", mask)))


@given(clean_steps())
def test_every_clean_mask_is_recognised(step: VerifyStep) -> None:
    oracle = Oracle(step)
    assert all(mask_is_intended(step, oracle, request) for request in range(step.raw_bs))


LAYOUTS = [("full", "bytes"), ("full", "bits"), ("qlen", "bytes"), ("qlen", "bits")]


@pytest.mark.parametrize(("layout", "encoding"), LAYOUTS)
@pytest.mark.parametrize("window", [None, 2])
def test_each_cell_alone(layout: str, encoding: str, window: int | None) -> None:
    """A flipped bit is noticed exactly where the cells differ from the intended ones in a row of a node."""
    step = batch(layout=layout, encoding=encoding, window=window, backend="flashinfer")
    for place in range(len(step.inputs.custom_mask)):
        for bit in range(8 if encoding == "bits" else 1):
            value = int(step.inputs.custom_mask[place]) ^ 1 << bit
            context = StepContext(spoil(step, (f"inputs.custom_mask.{place}", value)))
            for request in context.readable:
                difference = context.difference(context.built[request], request)
                assert context.surely_intended(request) == (not len(difference.cells))


def test_other_values_than_one_are_not_passed_over() -> None:
    step = spoil(batch(), ("inputs.custom_mask.0", 2))
    context = StepContext(step)
    assert not context.surely_intended(0)
    assert context.built_difference(0) is None
    assert [(f.check, f.diagnosis) for f in findings(step)] == [("I5", "packing")]


def test_a_buffer_that_ends_early() -> None:
    step = batch()
    cut = spoil(step, ("inputs.custom_mask", step.inputs.custom_mask[:300]))
    oracle = Oracle(cut)
    assert [mask_is_intended(cut, oracle, request) for request in range(3)] == [True, True, False]
    assert not mask_is_intended(spoil(step, ("inputs.custom_mask", None)), oracle, 0)


@pytest.mark.parametrize("layout", ["full", "qlen"])
def test_clean_steps_are_never_decoded(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> MaskView:
        raise AssertionError("a clean mask was decoded")

    steps = list(synthetic_steps(Shape(steps=4, prefix_len=64, layout=layout)))
    monkeypatch.setattr(context_module, "built_mask", refuse)
    monkeypatch.setattr(context_module, "addressed_mask", refuse)
    monkeypatch.setattr(Oracle, "intended", refuse)  # no array has rows * prefix cells
    assert check_trace(steps).findings == ()


@given(
    st.lists(st.integers(-9, 9), max_size=12),
    st.lists(st.lists(st.integers(-9, 9), max_size=12), max_size=3),
    st.sampled_from([0, 1 << 62, -(1 << 62), (1 << 63) - 10, -(1 << 63) + 9]),
    st.sampled_from([1, MAX_TABLE]),
)
def test_few_among_many(values: list[int], held: list[list[int]], base: int, apart: int) -> None:
    least, most = -(1 << 63), (1 << 63) - 1

    def array(numbers: list[int]) -> np.ndarray:
        return ints(*(min(max(base + number * apart, least), most) for number in numbers))

    mine, theirs = array(values), [array(each) for each in held]
    known = {number for each in theirs for number in each.tolist()}
    assert is_among(mine, theirs).tolist() == [number in known for number in mine.tolist()]


def test_far_ends_do_not_meet() -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    assert is_among(ints(most), [ints(least, least + 1)]).tolist() == [False]
    assert is_among(ints(least, least + 3), [ints(most, 0)]).tolist() == [False, False]
    assert is_among(ints(least, most), [ints(most)]).tolist() == [False, True]


def test_derived_once_a_step_and_request() -> None:
    asked: list[Any] = []

    @once
    def number(context: StepContext, request: int) -> int:
        asked.append(request)
        return len(asked)

    @once_a_step
    def rows(context: StepContext) -> int:
        asked.append("rows")
        return len(asked)

    context = StepContext(batch())
    assert [number(context, 0), number(context, 0), number(context, 1)] == [1, 1, 2]
    assert [rows(context), rows(context)] == [3, 3]
    assert number(context.by_itself(), 0) == 1
    assert number(StepContext(context.step), 0) == 4
    assert asked == [0, 1, "rows", 0]


def test_the_step_before_is_looked_at_once() -> None:
    first, second = batch(), batch(number=1)
    seen = StepContext(first)
    assert StepContext(second, first, made=seen).earlier is seen
    other = StepContext(second, replace(first), made=seen).earlier
    assert other is not None
    assert other is not seen
    assert StepContext(second).earlier is None


def test_the_bytes_of_a_view_are_made_when_asked_for() -> None:
    made = []

    def places() -> np.ndarray:
        made.append(1)
        return np.zeros((1, 1), np.int64)

    view = MaskView(MaskKind.BUILT, 0, np.zeros((1, 1), np.int8), places)
    assert made == []
    assert view.bytes is view.bytes
    assert made == [1]
    fixed = np.ones((1, 1), np.int64)
    assert MaskView(MaskKind.BUILT, 0, np.zeros((1, 1), np.int8), fixed).bytes is fixed
