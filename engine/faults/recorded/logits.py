"""Faults of single rows' logits: not numbers, never written, or another choice than plain decoding's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from engine.faults.recorded.edit import every, need, rows_of, spare_leaf, with_outcome
from engine.faults.recorded.injector import Apply, RecordedInjector
from engine.step import Float64, Int64, VerifyStep

Row = Callable[[VerifyStep, int], VerifyStep]  # a step and a flat row of it


def at_spare_leaves(edit: Row) -> Apply:
    """The change in the row of one leaf a request that was not accepted, where there is one."""

    def edit_step(step: VerifyStep) -> VerifyStep:
        for request in range(step.raw_bs):
            leaf = spare_leaf(step, request)
            if leaf is not None:
                step = edit(step, rows_of(step, request).start + leaf)
        return step

    return every(edit_step)


def predicted(step: VerifyStep, row: int, token: int) -> Int64:
    """Predictions with another token in one row, int64 [rows]."""
    predict = need(step.outcome.target_predict, "outcome.target_predict").copy()
    predict[row] = token
    return predict


def flipped(step: VerifyStep, row: int) -> VerifyStep:
    """The step that takes the runner-up of a row for the best token."""
    top2 = need(step.outcome.top2, "outcome.top2").copy()
    top2[row, :, 0] = top2[row, ::-1, 0]
    return with_outcome(step, top2=top2, target_predict=predicted(step, row, int(top2[row, 0, 0])))


def _not_finite(step: VerifyStep, row: int) -> VerifyStep:
    """NaN in a row; its argmax is the first NaN's place."""
    top2 = need(step.outcome.top2, "outcome.top2").copy()
    finite = need(step.outcome.finite_rows, "outcome.finite_rows").copy()
    top2[row], finite[row] = np.nan, False
    return with_outcome(step, top2=top2, finite_rows=finite, target_predict=predicted(step, row, 0))


def _unwritten(step: VerifyStep, row: int) -> VerifyStep:
    """Zeros in a row that no program wrote; their argmax is the first of them."""
    top2 = need(step.outcome.top2, "outcome.top2").copy()
    top2[row] = [[0, 0.0], [1, 0.0]]
    return with_outcome(step, top2=top2, target_predict=predicted(step, row, 0))


def _rounded(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    coarse = [replace(step, logits_dtype="bfloat16") for step in steps]
    return at_spare_leaves(_tied)(coarse)


def _tied(step: VerifyStep, row: int) -> VerifyStep:
    """The two best logits of a row round to the same number in both passes, which then choose differently."""
    theirs = _level(need(step.reference.top2, "reference.top2"), row)
    mine = _level(need(step.outcome.top2, "outcome.top2"), row)
    tied = replace(step, reference=replace(step.reference, top2=theirs))
    return flipped(with_outcome(tied, top2=mine), row)


def _level(top2: Float64, row: int) -> Float64:
    level = top2.copy()
    level[row, :, 1] = level[row, 0, 1]
    return level


INJECTORS = (
    RecordedInjector(
        "non-finite-row",
        "A leaf's logits are not numbers, because NaN behind its mask was multiplied by 0.",
        at_spare_leaves(_not_finite),
    ),
    RecordedInjector(
        "unwritten-logits",
        "No program writes the logits of a leaf's row, which stay zero.",
        at_spare_leaves(_unwritten),
    ),
    RecordedInjector(
        "flipped-row",
        "The target chooses another token at a leaf than in plain decoding, by a clear margin.",
        at_spare_leaves(flipped),
    ),
    RecordedInjector(
        "rounding-flip",
        "The two best tokens of a leaf tie after rounding, and the two passes choose differently.",
        _rounded,
    ),
)
