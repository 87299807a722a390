"""I18: the drafter goes on from the bonus token, with the hidden states of exactly the accepted nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.paths import committable, implied_nodes, recorded_nodes

HINTS = {
    "drafter-anchor": "The block's first token must be the bonus of the step before, or every marginal is off.",
    "hidden-rows": "The drafter's context holds hidden states of other nodes than the accepted ones.",
    "drafter-context": "The rows handed to the drafter are no nodes of this tree.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    for request in context.readable:
        found = next(_anchor(spec, context, request), None) or next(
            _hidden(spec, context, request), None
        )
        if found is not None:
            yield found


def _anchor(spec: Spec, context: StepContext, request: int) -> Iterator[Finding]:
    """The root of this tree against the bonus of the step before."""
    tree, before = context.step.requests[request].tree, context.previous
    if before is None or before.outcome.bonus_tokens is None or tree.tokens is None:
        return
    for number, other in enumerate(before.requests):
        if other.rid != context.rid(request) or number >= len(before.outcome.bonus_tokens):
            continue
        expected, found = int(before.outcome.bonus_tokens[number]), int(tree.tokens[0])
        if expected != found:
            row = context.oracle.rows(request).start
            yield spec.finding(
                context,
                request,
                "drafter-anchor",
                f"request {context.rid(request)}: the root is token {found}, the step before ended with "
                f"bonus {expected}",
                hint=HINTS["drafter-anchor"],
                effect=Effect.ACCEPTANCE,
                where=Where(node=0, row=row),
                expected=expected,
                found=found,
                count=1,
            )


def _hidden(spec: Spec, context: StepContext, request: int) -> Iterator[Finding]:
    handed = context.step.commit.hidden_rows
    nodes = recorded_nodes(context, request) or implied_nodes(context, request)
    if handed is None or nodes is None or request >= len(handed):
        return
    found = handed[request].tolist()
    if found in committable(context, request, nodes):
        return
    inside = all(0 <= node < context.oracle.trees[request].num_nodes for node in found)
    diagnosis = "hidden-rows" if inside else "drafter-context"
    at = first_difference(np.array(found, np.int64), np.array(nodes))
    yield spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.rid(request)}: hidden states of nodes {found} go to the drafter, should be {nodes}",
        hint=HINTS[diagnosis],
        effect=Effect.ACCEPTANCE,
        where=Where(node=nodes[at] if at is not None and at < len(nodes) else None),
        expected=nodes,
        found=found,
        count=count_differences(np.array(found, np.int64), np.array(nodes)),
    )
