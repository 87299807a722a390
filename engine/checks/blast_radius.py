"""Which rows a fault can have reached: its own, and every row that attends to one of them.

A wrong row writes wrong keys and values, so the rows that see it are wrong too, and a request whose accepted rows were
computed wrongly, or whose cache was committed wrongly, stays wrong in later steps.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import StepContext
from engine.checks.finding import Effect, Finding
from engine.checks.logit_rows import flat_rows, not_finite_rows
from engine.checks.overwrites import lost_rows, overwrites_prefix, overwritten
from engine.checks.paths import recorded_nodes
from engine.layout import VISIBLE

# Checks whose faults leave wrong keys and values in the cache.
DAMAGING = ("I1", "I2", "I3", "I4", "I5", "I8", "I9", "I10", "I11", "I15", "I16")
COMMITTED = ("I15", "I16")  # faults of what is kept, whatever the rows saw


def cause_of_rows(context: StepContext, request: int, rows: list[int]) -> str | None:
    """The first earlier fault that reaches one of the ``rows`` (flat), if all of them are reached by some fault."""
    rid = context.rid(request)
    first, reached = None, set[int]()
    for finding in context.found:
        if finding.request in (None, rid) and _stands(finding):
            reach = _reach(context, request, finding.check)
            if first is None and reach & set(rows):
                first = finding.check
            reached |= reach
    return first if set(rows) <= reached else None


def reached_nodes(
    context: StepContext, request: int, findings: Iterable[Finding]
) -> tuple[tuple[str, frozenset[int]], ...]:
    """``(check, nodes)`` of every fault among the findings that reaches a row of the request."""
    start = context.oracle.rows(request).start
    reaches = [(f.check, _reach(context, request, f.check)) for f in findings if _stands(f)]
    return tuple((check, frozenset(row - start for row in rows)) for check, rows in reaches if rows)


def damaged_requests(context: StepContext) -> dict[str, str]:
    """``{request id: check}`` of the requests whose cache this step left with wrong keys and values.

    A wrong row leaves something behind only if it was accepted; where that is not known, it is taken for granted.
    """
    out: dict[str, str] = {}
    for finding in context.found:
        if _stands(finding) and finding.effect is Effect.OUTPUT and finding.check in DAMAGING:
            for request in context.requests:
                rid = context.rid(request)
                if finding.check in ("I11", "I16"):
                    hit = overwritten(context, request, finding)
                elif finding.check == "I3" and finding.request is None:
                    hit = False
                else:
                    mine = finding.request in (None, rid)
                    hit = mine and _is_kept(context, request, finding.check)
                if hit:
                    out.setdefault(rid, finding.check)
    return out


def _stands(finding: Finding) -> bool:
    """Whether a fault is a cause, or one that the same check's fault in another request explains."""
    return finding.is_cause or finding.consequence_of == finding.check


def _is_kept(context: StepContext, request: int, check: str) -> bool:
    nodes = recorded_nodes(context, request)
    if check in COMMITTED or nodes is None:
        return True
    start = context.oracle.rows(request).start
    return bool(_reach(context, request, check) & {start + node for node in nodes})


def _reach(context: StepContext, request: int, check: str) -> set[int]:
    if not context.well_formed[request]:
        return set()
    wrong = _own_rows(context, request, check)
    if not wrong:
        return set()
    prefix_len = int(context.oracle.prefix_lens[request])
    masks = context.addressed if context.can_address() else context.intended
    sees = masks[request].cells[:, prefix_len:] == VISIBLE
    while True:
        wider = wrong | set(np.flatnonzero(sees[:, sorted(wrong)].any(axis=1)).tolist())
        if wider == wrong:
            break
        wrong = wider
    start = context.oracle.rows(request).start
    return {start + row for row in wrong if row < context.oracle.num_verified(request)}


def _own_rows(context: StepContext, request: int, check: str) -> set[int]:
    """Local rows that the fault itself makes wrong."""
    real = context.oracle.real_rows(request)
    inputs = context.step.inputs
    if check == "I3":
        return set(range(len(real)))
    if check == "I9":
        lost = {*not_finite_rows(context), *flat_rows(context)}
        return {row - real.start for row in real if row in lost}
    if check == "I16" and overwrites_prefix(context, request):
        return set(
            range(len(real))
        )  # rows are written before any is read: all of them see the new token
    if check == "I16":
        return {row - real.start for row in lost_rows(context, request) if row in real}
    if check in ("I1", "I4", "I6") and context.can_address():
        view = context.addressed[request]
        wrong = set(context.difference(view, request).cells[:, 0].tolist())
        return wrong | set(np.flatnonzero((view.cells < 0).all(axis=1)).tolist())
    if check in ("I5", "I8") and inputs.custom_mask is not None:
        difference = context.built_difference(request)
        return set() if difference is None else set(difference.cells[:, 0].tolist())
    if check == "I10" and inputs.positions is not None:
        mine = inputs.positions[real.start : real.stop]
        return set(np.flatnonzero(mine != context.oracle.positions(request)[: len(mine)]).tolist())
    if check == "I2" and inputs.input_ids is not None:
        ids = inputs.input_ids[real.start : real.stop]
        return set(np.flatnonzero(ids != context.oracle.trees[request].tokens[: len(ids)]).tolist())
    return set()
