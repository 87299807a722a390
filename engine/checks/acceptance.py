"""I13: the accepted path is the longest one whose every node is what its parent's row predicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.checks.links import walk
from engine.step import Int64

HINTS = {
    "path-not-maximal": "A further node matched and was not taken: tokens are lost, the text stays right.",
    "shifted-logits": "Each node was judged by another row than its parent's, in all accepted nodes.",
    "wrong-child": "The walk took a child that its parent's row does not predict.",
    "acceptance": "",
}


def recorded_nodes(context: StepContext, request: int) -> list[int] | None:
    """Accepted nodes as recorded (padding -1 dropped), None where one lies outside the request's rows."""
    accepted = context.step.outcome.accept_index
    if accepted is None or request >= len(accepted):
        return None
    rows = context.oracle.rows(request)
    flat = [int(row) for row in accepted[request] if row != -1]
    if not flat or not all(row in rows for row in flat):
        return None
    return [row - rows.start for row in flat]


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    predict = context.step.outcome.target_predict
    assert predict is not None
    for request in context.readable:
        rows, found = context.oracle.real_rows(request), recorded_nodes(context, request)
        if (
            found is None
            or rows.stop > len(predict)
            or context.step.requests[request].tree.tokens is None
        ):
            continue
        mine = predict[rows.start : rows.stop]
        expected = context.oracle.accepted_nodes(request, predict)
        if found != expected and found != until_stop(context, request, expected):
            yield _finding(spec, context, request, found, expected, mine)
        else:
            yield from _length(spec, context, request, found)


def until_stop(context: StepContext, request: int, path: Sequence[int]) -> list[int]:
    """The path up to its first end-of-sequence token."""
    stops, tokens = context.step.config.eos_token_ids, context.oracle.trees[request].tokens
    for length, node in enumerate(path, start=1):
        if length > 1 and stops is not None and tokens[node] in stops:
            return list(path[:length])
    return list(path)


def _finding(
    spec: Spec,
    context: StepContext,
    request: int,
    found: list[int],
    expected: list[int],
    predict: Int64,
) -> Finding:
    diagnosis = _diagnose(context, request, found, expected, predict)
    place = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
    at = min(len(found), len(expected)) if place is None else place
    node = found[at] if at < len(found) else expected[at]
    parent = (found if at < len(found) else expected)[at - 1]
    first_row = context.oracle.real_rows(request).start
    return spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.step.requests[request].rid}: accepted {found}, should be {expected}; "
        f"row {first_row + parent} (node {parent}) predicts token {int(predict[parent]) if parent < len(predict) else '?'}",
        hint=HINTS[diagnosis],
        effect=Effect.ACCEPTANCE if diagnosis == "path-not-maximal" else Effect.OUTPUT,
        where=Where(node=node, row=first_row + node),
        expected=expected,
        found=found,
        count=sum(a != b for a, b in zip(found, expected, strict=False))
        + abs(len(found) - len(expected)),
        consequence_of="I12" if _follows_links(context, request, found, predict) else None,
    )


def _follows_links(context: StepContext, request: int, found: list[int], predict: Int64) -> bool:
    """Whether the recorded path is what the recorded, wrong links give."""
    links = context.step.links
    if links.retrieve_next_token is None or links.retrieve_next_sibling is None:
        return False
    if request >= min(len(links.retrieve_next_token), len(links.retrieve_next_sibling)):
        return False
    num_nodes = len(predict)
    tokens = links.retrieve_next_token[request][:num_nodes]
    siblings = links.retrieve_next_sibling[request][:num_nodes]
    if min(len(tokens), len(siblings)) < num_nodes:
        return False
    path = walk(tokens, siblings, context.oracle.trees[request].tokens, predict)
    return found in (path, until_stop(context, request, path))


def _diagnose(
    context: StepContext, request: int, found: list[int], expected: list[int], predict: Int64
) -> str:
    tree = context.oracle.trees[request]
    if found == expected[: len(found)]:
        return "path-not-maximal"
    is_path = all(
        0 < child < tree.num_nodes and int(tree.parents[child]) == parent
        for parent, child in zip(found, found[1:], strict=False)
    )
    if not is_path or found[0] != 0:
        return "acceptance"
    for offset in (1, -1):
        if len(found) > 1 and _walk_shifted(context, request, predict, offset) == found:
            return "shifted-logits"
    return "wrong-child"


def _walk_shifted(context: StepContext, request: int, predict: Int64, offset: int) -> list[int]:
    """Path in which each node is judged by the row ``offset`` rows after its parent's; offset 1 also tries its own."""
    tree = context.oracle.trees[request]
    own = [0]
    while (step := _own_row_child(tree.children[own[-1]], tree.tokens, predict)) is not None:
        own.append(step)
    recorded = recorded_nodes(context, request)
    if offset == 1 and own == recorded:
        return own
    shifted = np.roll(predict, -offset)
    path = [0]
    while True:
        fitting = [c for c in tree.children[path[-1]] if tree.tokens[c] == shifted[path[-1]]]
        if not fitting:
            return path
        path.append(fitting[0])


def _own_row_child(below: tuple[int, ...], tokens: Int64, predict: Int64) -> int | None:
    return next((c for c in below if c < len(predict) and tokens[c] == predict[c]), None)


def _length(spec: Spec, context: StepContext, request: int, found: list[int]) -> Iterable[Finding]:
    lengths = context.step.outcome.accept_length
    if lengths is None or request >= len(lengths) or int(lengths[request]) == len(found):
        return
    yield spec.finding(
        context,
        request,
        "acceptance",
        f"request {context.step.requests[request].rid}: accept_length is {int(lengths[request])}, "
        f"accept_index holds {len(found)} nodes (root included)",
        effect=Effect.OUTPUT,
        expected=len(found),
        found=int(lengths[request]),
        count=1,
    )
