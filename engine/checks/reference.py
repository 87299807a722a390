"""I22: at every node the target chooses what plain decoding chooses there.

A difference is a ``near-tie`` where both sides' two best tokens are each other's and lie within 4 units in the last
place of the logits' dtype; anything else that no earlier finding of the request explains is unexplained.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.blast_radius import cause_of_rows
from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.step import UNKNOWN_TOKEN, Float64, Int64

MANTISSA_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
NEAR_TIE_ULPS = 4
NEAR_TIE_HINT = "The two best tokens lie within rounding of each other: nobody's fault."


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most: the first mismatch that is no near-tie, else the near-ties."""
    found = context.step.outcome.target_predict
    expected = context.step.reference.target_predict
    assert found is not None
    assert expected is not None
    if context.step.config.temperature:
        return  # samples differ by design
    common = min(len(found), len(expected))
    differs = (expected[:common] != UNKNOWN_TOKEN) & (found[:common] != expected[:common])
    apart = np.flatnonzero(differs).tolist()
    for request in context.requests if apart else ():
        rows = context.oracle.real_rows(request)
        wrong = [row for row in apart if row in rows]
        if wrong:
            faults = [r for r in wrong if not is_near_tie(context, r)]
            yield _finding(spec, context, request, wrong, faults, found, expected)


def _finding(
    spec: Spec,
    context: StepContext,
    request: int,
    wrong: list[int],
    faults: list[int],
    found: Int64,
    expected: Int64,
) -> Finding:
    row, cause, hint = (faults or wrong)[0], None, NEAR_TIE_HINT
    if faults:
        cause, hint = _cause(context, request, faults)
    node = row - context.oracle.real_rows(request).start
    text = (
        f"request {context.rid(request)}, row {row} (node {node}) predicts token {int(found[row])}, "
        f"plain decoding {int(expected[row])}"
    )
    return spec.finding(
        context,
        request,
        "unexplained-mismatch" if faults else "near-tie",
        text,
        hint=hint,
        effect=Effect.OUTPUT if faults else Effect.NONE,
        verdict=Verdict.FAULT if faults else Verdict.NEAR_TIE,
        where=Where(node=node, row=row),
        expected=int(expected[row]),
        found=int(found[row]),
        count=len(faults or wrong),
        consequence_of=cause,
    )


def _cause(context: StepContext, request: int, rows: list[int]) -> tuple[str | None, str]:
    """The check that explains these rows, and how: a fault of this step that reaches them, or a damaged cache."""
    check = cause_of_rows(context, request, rows)
    if check is not None:
        return check, f"{check} reaches {'this row' if len(rows) == 1 else 'these rows'}."
    if not context.well_formed[request] and context.has("I7", request):
        return "I7", "A tree that is none has no rows to compare."
    damage = context.damaged.get(context.rid(request))
    if damage is not None:
        return (
            damage.check,
            f"The request's cache holds wrong keys and values since step {damage.step}.",
        )
    return None, ""


def is_near_tie(context: StepContext, row: int) -> bool:
    """Whether both sides' two best tokens are each other's, within 4 ulp at the larger logit."""
    sides = (context.step.outcome.top2, context.step.reference.top2)
    dtype = context.step.logits_dtype
    if any(top2 is None or row >= len(top2) for top2 in sides):
        return False
    mine, theirs = (top2[row] for top2 in sides if top2 is not None)
    pairs = (context.step.outcome.target_predict, context.step.reference.target_predict)
    chosen = {float(predict[row]) for predict in pairs if predict is not None}
    if not set(mine[:, 0].tolist()) == set(theirs[:, 0].tolist()) == chosen:
        return False
    return all(margin_is_tiny(pair[:, 1], dtype) for pair in (mine, theirs))


def margin_is_tiny(logits: Float64, dtype: str | None) -> bool:
    """Whether two logits lie within 4 ulp of ``dtype`` at the larger one; never where the dtype is not known."""
    mantissa_bits = MANTISSA_BITS.get(dtype or "")
    larger = float(np.abs(logits).max())
    if mantissa_bits is None or not np.isfinite(larger):
        return False
    ulp = 2.0 ** (np.floor(np.log2(larger)) - mantissa_bits) if larger > 0 else 0.0
    return bool(abs(float(logits[0] - logits[1])) <= NEAR_TIE_ULPS * ulp)
