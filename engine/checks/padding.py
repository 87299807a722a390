"""I11: rows of padded requests (captured, not live) stand at position 0 and write to the padding slot."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64, VerifyStep

HINTS = {
    "stale-padding": "The rows were not reset: they still hold what the step before, or a live request, has there.",
    "padding": "Reset the rows of padded requests before each replay.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding for the whole step at most."""
    geometry, live = context.oracle.geometry, context.step.raw_bs
    rows = slice(int(geometry.qo_indptr[live]), int(geometry.qo_indptr[-1]))
    columns = _columns(context.step) if live < geometry.bs else {}
    wrong: dict[str, Int64] = {
        name: rows.start + differing
        for name, (found, sentinel) in columns.items()
        if len(differing := np.flatnonzero(found[rows] != sentinel))
    }
    if not wrong:
        return
    name = min(wrong, key=lambda n: int(wrong[n][0]))
    row, (found, sentinel) = int(wrong[name][0]), columns[name]
    stale = all(_is_stale(context, n, int(r)) for n, differing in wrong.items() for r in differing)
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
    """``name -> (per-row array, what padded rows must hold)`` of what was recorded and is known."""
    columns = {}
    if step.inputs.positions is not None:
        columns["positions"] = (step.inputs.positions, 0)
    if step.inputs.out_cache_loc is not None and step.config.padding_slot is not None:
        columns["out_cache_loc"] = (step.inputs.out_cache_loc, step.config.padding_slot)
    return columns


def _is_stale(context: StepContext, name: str, row: int) -> bool:
    """Whether a padded row holds what it held in the step before, or what a live request has in that row of its own."""
    mine, indptr = getattr(context.step.inputs, name), context.oracle.geometry.qo_indptr
    before = None if context.previous is None else getattr(context.previous.inputs, name)
    if before is not None and row < len(before) and before[row] == mine[row]:
        return True
    local = row - int(indptr[np.searchsorted(indptr, row, side="right") - 1])
    rows = [context.oracle.rows(request) for request in context.requests]
    twins = [own.start + local for own in rows if local < len(own)]
    return any(twin < len(mine) and mine[twin] == mine[row] for twin in twins)
