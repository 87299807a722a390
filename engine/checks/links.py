"""I12: ``retrieve_next_token`` and ``retrieve_next_sibling`` describe the tree of the builder."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, once, same
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64

NAMES = ("retrieve_next_token", "retrieve_next_sibling")


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    for request in context.readable:
        yield from _compare(spec, context, request)


def _compare(spec: Spec, context: StepContext, request: int) -> Iterable[Finding]:
    expected = _true_links(context, request)
    found = recorded_links(context, request)
    if same(found[0], expected[0]) and same(found[1], expected[1]):
        return
    wrong = [np.flatnonzero(have != want) for have, want in zip(found, expected, strict=True)]
    places = sorted((int(node), side) for side in (0, 1) for node in wrong[side])
    node, side = places[0]
    have, want = int(found[side][node]), int(expected[side][node])
    rid = context.rid(request)
    yield spec.finding(
        context,
        request,
        _diagnose(context, request, found, (wrong[0], wrong[1])),
        f"request {rid}: {NAMES[side]}[{node}] is {have}, should be {want}" + _unreachable(*found),
        hint="The walk only follows links: a node that they leave out is never accepted; the text stays right.",
        effect=Effect.ACCEPTANCE,
        where=Where(node=node, row=context.oracle.real_rows(request).start + node),
        expected=want,
        found=have,
        count=len(places),
        consequence_of="I2" if _beyond_counted(context, request, found) else None,
    )


@once
def _true_links(context: StepContext, request: int) -> tuple[Int64, Int64]:
    return context.oracle.links(request)


def recorded_links(context: StepContext, request: int) -> tuple[Int64, Int64]:
    """Both arrays for the real rows; a missing entry is -1 (none), an array that was not recorded is taken as right."""
    expected, out = _true_links(context, request), []
    for name, want in zip(NAMES, expected, strict=True):
        lists = getattr(context.step.links, name)
        known = lists is not None and request < len(lists)
        out.append(_padded(lists[request], len(want)) if known else want)
    return out[0], out[1]


def _beyond_counted(context: StepContext, request: int, found: tuple[Int64, Int64]) -> bool:
    """Whether the links are exactly those of the tree cut to the nodes that the engine counted."""
    counted = context.step.requests[request].counted_nodes
    if counted is None or not 0 < counted < len(found[0]):
        return False
    wanted = _true_links(context, request)
    cut = [np.where(want >= counted, -1, want) for want in wanted]
    return all(
        np.array_equal(have[:counted], want[:counted])
        for have, want in zip(found, cut, strict=True)
    )


def _padded(found: Int64, length: int) -> Int64:
    """The first ``length`` entries; -1 (none) where the record is shorter."""
    if len(found) >= length:
        return found[:length]
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
        n > 0
        and (
            siblings[n] == -1
            or (siblings[n] > n and siblings[n] in tree.children[int(tree.parents[n])])
        )
        for n in wrong[1]
    )
    if len(wrong[0]) == 0 and skips_sibling:
        return "lost-sibling"
    if len(wrong[1]) == 0 and skips_child:
        return "lost-child"
    return "links"


def _unreachable(tokens: Int64, siblings: Int64) -> str:
    lost = sorted(set(range(len(tokens))) - set(reachable(tokens, siblings)))
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
