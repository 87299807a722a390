"""I18: the drafter goes on from the bonus token, with the hidden states of exactly the accepted nodes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.paths import followed_paths, kept_nodes, kept_paths

HINTS = {
    "drafter-anchor": "The block's first token must be the bonus of the step before, or every marginal is off.",
    "hidden-rows": "The drafter's context holds hidden states of other nodes than the accepted ones.",
    "drafter-context": "The rows handed to the drafter are no nodes of this tree.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most; the first that applies."""
    for request in context.readable:
        found = _anchor(spec, context, request) or _hidden(spec, context, request)
        if found is not None:
            yield found


def bonus_before(context: StepContext, request: int) -> list[int]:
    """Tokens that the step before may have ended with: the bonus as recorded, and as its own rows imply.

    A record of the bonus that is wrong while this step goes on rightly is that step's fault alone.
    """
    before, number = context.earlier, context.number_before(request)
    if before is None or number is None:
        return []
    recorded, predict = before.step.outcome.bonus_tokens, before.step.outcome.target_predict
    if recorded is None or number >= len(recorded):
        return []
    tokens = [int(recorded[number])]
    if predict is not None and before.well_formed[number] and before.rows_known:
        start = before.oracle.rows(number).start
        rows = [start + path[-1] for path in kept_paths(before, number)]
        tokens += [int(predict[row]) for row in rows if row < len(predict)]
    return tokens


def _anchor(spec: Spec, context: StepContext, request: int) -> Finding | None:
    """The root of this tree against the bonus of the step before."""
    tree, right = context.step.requests[request].tree, bonus_before(context, request)
    if tree.tokens is None or not right or int(tree.tokens[0]) in right:
        return None
    return spec.finding(
        context,
        request,
        "drafter-anchor",
        f"request {context.rid(request)}: the root is token {int(tree.tokens[0])}, should be {right[0]}, the "
        "bonus of the step before",
        hint=HINTS["drafter-anchor"],
        effect=Effect.ACCEPTANCE,
        where=Where(node=0, row=context.oracle.rows(request).start),
        expected=right[0],
        found=int(tree.tokens[0]),
        count=1,
    )


def _hidden(spec: Spec, context: StepContext, request: int) -> Finding | None:
    handed = context.step.commit.hidden_rows
    nodes = kept_nodes(context, request)
    if handed is None or nodes is None or request >= len(handed):
        return None
    found = handed[request].tolist()
    if found in kept_paths(context, request):
        return None
    inside = all(0 <= node < context.oracle.trees[request].num_nodes for node in found)
    diagnosis = "hidden-rows" if inside else "drafter-context"
    at = first_difference(np.array(found, np.int64), np.array(nodes, np.int64))
    node = nodes[at] if at is not None and at < len(nodes) else None
    cause = next(
        (check for check, path in followed_paths(context, request, nodes) if found == path), None
    )
    return spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.rid(request)}: hidden states of nodes {found} go to the drafter, should be {nodes}",
        hint=HINTS[diagnosis],
        effect=Effect.ACCEPTANCE,
        where=Where(
            node=node, row=None if node is None else context.oracle.rows(request).start + node
        ),
        expected=nodes,
        found=found,
        count=count_differences(np.array(found, np.int64), np.array(nodes, np.int64)),
        consequence_of=cause,
    )
