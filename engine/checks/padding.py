"""I11: rows of padded requests (captured, not live) stand at position 0 and write to the padding slot."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64, VerifyStep

HINTS = {
    "stale-padding": "The rows were not reset: they still hold what a live request had there.",
    "padding": "Reset the rows of padded requests before each replay.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding for the whole step at most."""
    geometry, live = context.oracle.geometry, context.step.raw_bs
    rows = slice(int(geometry.qo_indptr[live]), int(geometry.qo_indptr[-1]))
    wrong = {
        name: differing
        for name, (found, sentinel) in _columns(context.step).items()
        if len(differing := np.flatnonzero(found[rows] != sentinel))
    }
    if not wrong:
        return
    name = min(wrong, key=lambda n: int(wrong[n][0]))
    found, sentinel = _columns(context.step)[name]
    row = rows.start + int(wrong[name][0])
    stale = all(_is_stale(context, n, rows.start + differing) for n, differing in wrong.items())
    diagnosis = "stale-padding" if stale else "padding"
    yield spec.finding(
        context,
        None,
        diagnosis,
        f"padded row {row}: {name} is {int(found[row])}, should be {sentinel}",
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        where=Where(row=row),
        expected=sentinel,
        found=int(found[row]),
        count=sum(len(differing) for differing in wrong.values()),
    )


def _columns(step: VerifyStep) -> dict[str, tuple[Int64, int]]:
    """``name -> (per-row array, what padded rows must hold)`` of what was recorded."""
    slot = step.config.padding_slot
    columns = {
        "positions": (step.inputs.positions, 0),
        "out_cache_loc": (step.inputs.out_cache_loc, 0 if slot is None else slot),
    }
    return {name: (array, want) for name, (array, want) in columns.items() if array is not None}


def _is_stale(context: StepContext, name: str, rows: Int64) -> bool:
    """Every one of the rows holds what it held in the step before, or a value of a live request's rows."""
    mine = getattr(context.step.inputs, name)
    before = None if context.previous is None else getattr(context.previous.inputs, name)
    if before is not None and int(rows.max()) < len(before) and (mine[rows] == before[rows]).all():
        return True
    live = mine[: int(context.oracle.geometry.qo_indptr[context.step.raw_bs])]
    return bool(np.isin(mine[rows], live).all())
