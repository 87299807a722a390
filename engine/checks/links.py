"""I12: ``retrieve_next_token`` and ``retrieve_next_sibling`` describe the tree of the builder."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    links = context.step.links
    assert links.retrieve_next_token is not None and links.retrieve_next_sibling is not None
    covered = min(len(links.retrieve_next_token), len(links.retrieve_next_sibling))
    for request in context.readable:
        if request < covered:
            found = (links.retrieve_next_token[request], links.retrieve_next_sibling[request])
            yield from _compare(spec, context, request, found)


def _compare(
    spec: Spec, context: StepContext, request: int, found: tuple[Int64, Int64]
) -> Iterable[Finding]:
    expected = context.oracle.links(request)
    tokens, siblings = (
        _padded(mine, len(want)) for mine, want in zip(found, expected, strict=True)
    )
    wrong_token = np.flatnonzero(tokens != expected[0])
    wrong_sibling = np.flatnonzero(siblings != expected[1])
    if len(wrong_token) + len(wrong_sibling) == 0:
        return
    first_is_sibling = len(wrong_token) == 0 or (
        len(wrong_sibling) > 0 and wrong_sibling[0] < wrong_token[0]
    )
    name = "retrieve_next_sibling" if first_is_sibling else "retrieve_next_token"
    node = int((wrong_sibling if first_is_sibling else wrong_token)[0])
    have = int((siblings if first_is_sibling else tokens)[node])
    want = int(expected[1 if first_is_sibling else 0][node])
    diagnosis = _diagnose(context, request, (tokens, siblings), (wrong_token, wrong_sibling))
    yield spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.step.requests[request].rid}: {name}[{node}] is {have}, should be {want}"
        + _unreachable(context, request, tokens, siblings),
        hint="The walk only follows links: a node that they leave out is never accepted; the text stays right.",
        effect=Effect.ACCEPTANCE,
        where=Where(node=node, row=context.oracle.real_rows(request).start + node),
        expected=want,
        found=have,
        count=len(wrong_token) + len(wrong_sibling),
    )


def _padded(found: Int64, length: int) -> Int64:
    """The first ``length`` entries; -1 (none) where the record is shorter."""
    out = np.full(length, -1, np.int64)
    out[: min(length, len(found))] = found[:length]
    return out


def _diagnose(
    context: StepContext,
    request: int,
    found: tuple[Int64, Int64],
    wrong: tuple[Int64, Int64],
) -> str:
    """Lost links skip nodes or end early; anything else is the general form."""
    tree = context.oracle.trees[request]
    tokens, siblings = found
    skips_child = all(tokens[n] == -1 or tokens[n] in tree.children[n][1:] for n in wrong[0])
    skips_sibling = all(
        siblings[n] == -1
        or (siblings[n] > n and siblings[n] in tree.children[int(tree.parents[n])])
        for n in wrong[1]
        if n > 0
    ) and not (len(wrong[1]) and wrong[1][0] == 0)
    if len(wrong[0]) == 0 and skips_sibling:
        return "lost-sibling"
    if len(wrong[1]) == 0 and skips_child:
        return "lost-child"
    return "links"


def _unreachable(context: StepContext, request: int, tokens: Int64, siblings: Int64) -> str:
    tree = context.oracle.trees[request]
    lost = sorted(set(range(tree.num_nodes)) - set(reachable(tokens, siblings)))
    return f"; nodes {lost[:8]} cannot be reached" if lost else ""


def reachable(next_token: Int64, next_sibling: Int64) -> list[int]:
    """Nodes that a walk over the links visits, each once; links outside the tree are not followed."""
    seen: list[int] = []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if 0 <= node < len(next_token) and node not in seen:
            seen.append(node)
            waiting += [int(next_sibling[node]), int(next_token[node])]
    return seen


def walk(next_token: Int64, next_sibling: Int64, tokens: Int64, predict: Int64) -> list[int]:
    """Nodes that an acceptance walk over recorded links takes; ``predict`` by node. Bounded by the number of nodes."""
    path = [0]
    while len(path) <= len(next_token):
        wanted, node = int(predict[path[-1]]), int(next_token[path[-1]])
        steps = 0
        while 0 <= node < len(next_token) and tokens[node] != wanted and steps <= len(next_token):
            node, steps = int(next_sibling[node]), steps + 1
        if not 0 <= node < len(next_token) or tokens[node] != wanted:
            return path
        path.append(node)
    return path
