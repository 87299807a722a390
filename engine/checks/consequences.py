"""Whether a finding would vanish if an earlier finding's field held what it should.

Each repair puts the oracle's value into the field that one check judges. Checks whose fields no later check reads need
none; findings that follow from a wrong value in another way say so themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Finding, Verdict
from engine.checks.paths import implied_nodes
from engine.step import Int64, VerifyStep


def vanishes_with(spec: Spec, finding: Finding, context: StepContext) -> str | None:
    """The first earlier check whose repair makes ``spec`` silent about the same request and layer."""
    if finding.verdict is not Verdict.FAULT:
        return None
    for cause in dict.fromkeys(_earlier(finding, context)):
        repaired = REPAIRS[cause](context)
        if repaired is None:
            continue
        again = spec.run(spec, _with(repaired, context))
        if not any(
            other.request == finding.request and other.where.layer == finding.where.layer
            for other in again
        ):
            return cause
    return None


def _with(repaired: VerifyStep, context: StepContext) -> StepContext:
    return StepContext(repaired, context.previous, [], context.damaged, context.earlier)


def _earlier(finding: Finding, context: StepContext) -> list[str]:
    return [
        other.check
        for other in context.found
        if other.verdict is Verdict.FAULT
        and other.check != finding.check
        and other.check in REPAIRS
        and other.request in (None, finding.request)
    ]


def _rows(context: StepContext) -> VerifyStep | None:
    """Row extents of the oracle."""
    inputs, q_lens = context.step.inputs, context.oracle.q_lens
    if not len(q_lens):
        return None
    indptr = None if inputs.qo_indptr is None else context.oracle.geometry.qo_indptr
    longest = None if inputs.max_extend_len is None else int(q_lens.max())
    return replace(context.step, inputs=replace(inputs, qo_indptr=indptr, max_extend_len=longest))


def _accepted(context: StepContext) -> VerifyStep | None:
    """Accepted paths and lengths of the oracle, where it knows them."""
    outcome = context.step.outcome
    if outcome.accept_index is None:
        return None
    index = list(outcome.accept_index)
    lengths = None if outcome.accept_length is None else outcome.accept_length.copy()
    for request in context.readable:
        nodes = implied_nodes(context, request)
        if nodes is not None:
            index[request] = _flat(context, request, nodes)
            if lengths is not None:
                lengths[request] = len(nodes)
    right = replace(
        outcome,
        accept_index=tuple(index),
        accept_length=lengths,
        bonus_tokens=_bonuses(context, index),
    )
    return replace(context.step, outcome=right)


def _bonuses(context: StepContext, index: list[Int64]) -> Int64 | None:
    """What the last row of each path predicts; the recorded bonus where that is not known."""
    bonuses, predict = context.step.outcome.bonus_tokens, context.step.outcome.target_predict
    if bonuses is None or predict is None:
        return bonuses
    out = bonuses.copy()
    for request in context.readable:
        if implied_nodes(context, request) is not None and request < len(out):
            out[request] = predict[int(index[request][-1])]
    return out


def _flat(context: StepContext, request: int, nodes: list[int]) -> Int64:
    return context.oracle.rows(request).start + np.array(nodes, np.int64)


REPAIRS: dict[str, Callable[[StepContext], VerifyStep | None]] = {
    "I1": _rows,
    "I13": _accepted,
    "I14": _accepted,
}
