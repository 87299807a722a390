"""I17: the recurrent state that was kept is that of the last accepted node."""

from __future__ import annotations

from collections.abc import Iterable

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.checks.paths import followed_paths, kept_nodes, kept_paths

HINTS = {
    "commit-by-length": "The index is accepted length - 1, which is the last node of a chain only.",
    "recurrent-commit": "Gather the last accepted node from accept_index.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    kept = context.step.commit.recurrent_index
    if kept is None:
        return
    for request in context.readable:
        nodes = kept_nodes(context, request)
        if nodes is None or request >= len(kept):
            continue
        found = int(kept[request])
        if found not in {path[-1] for path in kept_paths(context, request)}:
            yield _finding(spec, context, request, nodes, found)


def _finding(
    spec: Spec, context: StepContext, request: int, nodes: list[int], found: int
) -> Finding:
    diagnosis = "commit-by-length" if found == len(nodes) - 1 else "recurrent-commit"
    cause = next(
        (check for check, path in followed_paths(context, request, nodes) if found == path[-1]),
        None,
    )
    return spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.rid(request)}: recurrent state of node {found} was kept, should be node "
        f"{nodes[-1]}, the last accepted",
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        where=Where(node=nodes[-1], row=context.oracle.rows(request).start + nodes[-1]),
        expected=nodes[-1],
        found=found,
        count=1,
        consequence_of=cause,
    )
