"""Which rows a fault can have reached: its own, and every row that attends to one of them.

A wrong row writes wrong keys and values, so the rows that see it are wrong too, and a request whose accepted rows were
computed wrongly, or whose cache was committed wrongly, stays wrong in later steps.
"""

from __future__ import annotations

import numpy as np

from engine.checks.context import StepContext
from engine.checks.finding import Effect, Finding
from engine.layout import VISIBLE

# Checks whose faults leave wrong keys and values in the cache.
DAMAGING = ("I1", "I2", "I4", "I8", "I10", "I15")


def cause_of_rows(context: StepContext, request: int, rows: list[int]) -> str | None:
    """The first earlier finding of the step whose reach covers all ``rows`` (flat); None if there is none."""
    rid = context.step.requests[request].rid
    for finding in context.found:
        if finding.request in (None, rid) and finding.is_cause:
            reach = _reach(context, request, finding.check)
            if reach and set(rows) <= reach:
                return finding.check
    return None


def damages(finding: Finding) -> bool:
    """Whether a finding leaves wrong keys and values behind."""
    return finding.is_cause and finding.effect is Effect.OUTPUT and finding.check in DAMAGING


def _reach(context: StepContext, request: int, check: str) -> set[int]:
    if not context.well_formed[request]:
        return set()
    wrong = _own_rows(context, request, check)
    prefix_len = int(context.oracle.prefix_lens[request])
    masks = context.addressed if context.can_address() else context.intended
    sees = masks[request].cells[:, prefix_len:] == VISIBLE
    while True:
        wider = wrong | set(np.flatnonzero(sees[:, sorted(wrong)].any(axis=1)).tolist())
        if wider == wrong:
            break
        wrong = wider
    start = context.oracle.rows(request).start
    return {start + row for row in wrong}


def _own_rows(context: StepContext, request: int, check: str) -> set[int]:
    """Local rows that the fault itself makes wrong."""
    real = context.oracle.real_rows(request)
    inputs = context.step.inputs
    if check in ("I1", "I4") and context.can_address():
        view = context.addressed[request]
        wrong = set(context.difference(view, request).cells[:, 0].tolist())
        return wrong | set(np.flatnonzero((view.cells < 0).all(axis=1)).tolist())
    if check == "I8":
        return set(context.difference(context.built[request], request).cells[:, 0].tolist())
    if check == "I10" and inputs.positions is not None:
        mine = inputs.positions[real.start : real.stop]
        return set(np.flatnonzero(mine != context.oracle.positions(request)[: len(mine)]).tolist())
    if check == "I2" and inputs.input_ids is not None:
        ids = inputs.input_ids[real.start : real.stop]
        return set(np.flatnonzero(ids != context.oracle.trees[request].tokens[: len(ids)]).tolist())
    return set()
