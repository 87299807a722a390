"""I13: the accepted path is the longest one whose every node is what its parent's row predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.links import recorded_links, walk
from engine.checks.paths import implied_nodes, kept_paths, recorded_nodes, until_stop
from engine.oracle import walk_tree
from engine.step import Int64

HINTS = {
    "path-not-maximal": "A further node matched and was not taken: tokens are lost, the text stays right.",
    "shifted-logits": "Each node was judged by another row than its parent's, in all accepted nodes.",
    "wrong-child": "The walk took a child that its parent's row does not predict.",
    "acceptance": "The accepted rows are no path of the tree from its root.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    for request in context.readable:
        found = recorded_nodes(context, request)
        if found is None:
            continue
        expected = implied_nodes(context, request)
        if expected not in (None, found) and found != until_stop(context, request, expected):
            yield _finding(spec, context, request, found, expected)
        else:
            yield from _length(spec, context, request, found)


def _finding(
    spec: Spec, context: StepContext, request: int, found: list[int], expected: list[int]
) -> Finding:
    predict, first_row = _predictions(context, request), context.oracle.rows(request).start
    diagnosis = _diagnose(context, request, found, expected, predict)
    at = first_difference(np.array(found), np.array(expected))
    assert at is not None
    path = found if at < len(found) else expected
    node = path[at]
    text = f"request {context.rid(request)}: accepted {found}, should be {expected}"
    if at > 0 and path[at - 1] < len(predict):
        parent = path[at - 1]
        text += f"; row {first_row + parent} (node {parent}) predicts token {int(predict[parent])}"
    return spec.finding(
        context,
        request,
        diagnosis,
        text,
        hint=HINTS[diagnosis],
        effect=Effect.ACCEPTANCE if diagnosis == "path-not-maximal" else Effect.OUTPUT,
        where=Where(node=node, row=first_row + node),
        expected=expected,
        found=found,
        count=count_differences(np.array(found), np.array(expected)),
        consequence_of=_explained_by(context, request, found, predict),
    )


def _predictions(context: StepContext, request: int) -> Int64:
    """What each real row of the request predicts, by node."""
    predict, rows = context.step.outcome.target_predict, context.oracle.real_rows(request)
    assert predict is not None
    return predict[rows.start : rows.stop]


def _explained_by(
    context: StepContext, request: int, found: list[int], predict: Int64
) -> str | None:
    """The check whose wrong field gives exactly this path when the walk is made with it."""
    for check, walked in _WALKS:
        if not context.has(check, request):
            continue
        path = walked(context, request, predict)
        if path is not None and found in (path, until_stop(context, request, path)):
            return check
    return None


def _walk_counted(context: StepContext, request: int, predict: Int64) -> list[int] | None:
    """The walk over the nodes that the engine counted."""
    counted = context.step.requests[request].counted_nodes
    if counted is None or not 0 < counted < len(predict):
        return None
    return walk_tree(context.oracle.trees[request], predict[:counted])


def _walk_ids(context: StepContext, request: int, predict: Int64) -> list[int] | None:
    """The walk over the tokens of ``input_ids``."""
    ids, rows = context.step.inputs.input_ids, context.oracle.real_rows(request)
    if ids is None or rows.stop > len(ids):
        return None
    tokens = context.oracle.trees[request].tokens.copy()
    tokens[: len(rows)] = ids[rows.start : rows.stop]
    return walk_tree(replace(context.oracle.trees[request], tokens=tokens), predict)


def _walk_links(context: StepContext, request: int, predict: Int64) -> list[int] | None:
    """The walk over the recorded links."""
    tokens, siblings = recorded_links(context, request)
    return walk(tokens, siblings, context.oracle.trees[request].tokens, predict)


def _walk_last_child(context: StepContext, request: int, predict: Int64) -> list[int] | None:
    """The walk that takes the last of several siblings with the same token."""
    tree, path = context.oracle.trees[request], [0]
    while path[-1] < len(predict) and len(path) <= tree.num_nodes:
        below = [c for c in tree.children[path[-1]] if tree.tokens[c] == predict[path[-1]]]
        if not below:
            break
        path.append(below[-1])
    return path


_WALKS: tuple[tuple[str, Callable[[StepContext, int, Int64], list[int] | None]], ...] = (
    ("I2", _walk_counted),
    ("I2", _walk_ids),
    ("I7", _walk_last_child),
    ("I12", _walk_links),
)


def _diagnose(
    context: StepContext, request: int, found: list[int], expected: list[int], predict: Int64
) -> str:
    if found == expected[: len(found)]:
        return "path-not-maximal"
    tree = context.oracle.trees[request]
    is_path = all(
        0 < child < len(predict) and int(tree.parents[child]) == parent
        for parent, child in pairwise(found)
    )
    if not is_path or found[0] != 0:
        return "acceptance"
    return "shifted-logits" if _judged_elsewhere(context, request, found) else "wrong-child"


def _judged_elsewhere(context: StepContext, request: int, found: list[int]) -> bool:
    """Whether the path is the walk that judges each node by its own row, or by a neighbour of its parent's."""
    predict, rows = context.step.outcome.target_predict, context.oracle.real_rows(request)
    tree = context.oracle.trees[request]
    assert predict is not None
    judges: tuple[Callable[[int, int], int], ...] = (
        lambda parent, child: child,
        lambda parent, child: parent + 1,
        lambda parent, child: parent - 1,
    )
    for judge in judges:
        path = [0]
        while len(path) <= tree.num_nodes:
            below = (c for c in tree.children[path[-1]] if c < len(rows))
            fits = (
                c for c in below if _says(predict, rows.start + judge(path[-1], c), tree.tokens[c])
            )
            child = next(fits, None)
            if child is None:
                break
            path.append(child)
        if len(path) > 1 and found in (path, until_stop(context, request, path)):
            return True
    return False


def _says(predict: Int64, row: int, token: int) -> bool:
    return 0 <= row < len(predict) and bool(predict[row] == token)


def _length(spec: Spec, context: StepContext, request: int, found: list[int]) -> Iterable[Finding]:
    lengths = context.step.outcome.accept_length
    if lengths is None or request >= len(lengths):
        return
    length = int(lengths[request])
    if length in {len(path) for path in kept_paths(context, request)}:
        return
    yield spec.finding(
        context,
        request,
        "acceptance",
        f"request {context.rid(request)}: accept_length is {length}, "
        f"accept_index holds {len(found)} nodes (root included)",
        hint="Whatever reads as many entries as accept_length says reads too few or too many.",
        effect=Effect.OUTPUT,
        expected=len(found),
        found=length,
        count=1,
    )
