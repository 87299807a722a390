"""Accepted paths: as recorded, as the target's predictions imply, and as far as an end-of-sequence token."""

from __future__ import annotations

from collections.abc import Sequence

from engine.checks.context import StepContext, once


@once
def outside(context: StepContext, request: int) -> tuple[int, int] | None:
    """``(entry, row)`` of the first entry of ``accept_index`` that is no row of the request; None if all are.

    -1 pads the end only: one at the front, or between two rows, lies outside.
    """
    accepted = context.step.outcome.accept_index
    if accepted is None or request >= len(accepted):
        return None
    rows, flat = context.oracle.rows(request), accepted[request].tolist()
    while len(flat) > 1 and flat[-1] == -1:
        flat.pop()
    return next(((at, row) for at, row in enumerate(flat or [-1]) if row not in rows), None)


@once
def recorded_nodes(context: StepContext, request: int) -> list[int] | None:
    """Accepted nodes as recorded (padding -1 dropped), None where one lies outside the request's rows."""
    accepted = context.step.outcome.accept_index
    if accepted is None or request >= len(accepted) or outside(context, request) is not None:
        return None
    start = context.oracle.rows(request).start
    return [row - start for row in accepted[request].tolist() if row != -1]


@once
def implied_nodes(context: StepContext, request: int) -> list[int] | None:
    """Nodes that the target's predictions accept, None where those or the tokens are not recorded."""
    predict, rows = context.step.outcome.target_predict, context.oracle.real_rows(request)
    if predict is None or rows.stop > len(predict):
        return None
    if context.step.requests[request].tree.tokens is None:
        return None
    return context.oracle.accepted_nodes(request, predict)


@once
def kept_nodes(context: StepContext, request: int) -> list[int] | None:
    """Accepted nodes as recorded, else as the predictions imply; None where neither is known."""
    return recorded_nodes(context, request) or implied_nodes(context, request)


@once
def _tokens(context: StepContext, request: int) -> list[int]:
    tokens: list[int] = context.oracle.trees[request].tokens.tolist()
    return tokens


def until_stop(context: StepContext, request: int, path: Sequence[int]) -> list[int]:
    """The path up to its first end-of-sequence token."""
    stops, tokens = context.stops, _tokens(context, request)
    for length, node in enumerate(path if stops else (), start=1):
        if length > 1 and node < len(tokens) and tokens[node] in stops:
            return list(path[:length])
    return list(path)


@once
def kept_paths(context: StepContext, request: int) -> list[list[int]]:
    """Paths that may be committed for :func:`kept_nodes`; none where those are not known."""
    nodes = kept_nodes(context, request)
    return [] if nodes is None else committable(context, request, nodes)


def committable(context: StepContext, request: int, nodes: list[int]) -> list[list[int]]:
    """Paths that may be committed for an accepted one: itself, and either end of one that passes a stop."""
    paths = [nodes, until_stop(context, request, nodes)]
    implied = implied_nodes(context, request)
    if implied is not None and nodes == until_stop(context, request, implied):
        paths.append(implied)
    return paths


def followed_paths(
    context: StepContext, request: int, nodes: list[int]
) -> list[tuple[str, list[int]]]:
    """``(check, path)`` of the paths that follow from a wrong record of the acceptance, never empty ones.

    An ``accept_index`` out of range (I14) taken at its word, and ``accept_length`` (I13) entries of the path.
    """
    outcome, start = context.step.outcome, context.oracle.rows(request).start
    paths = []
    if outcome.accept_index is not None and outside(context, request) is not None:
        flat = outcome.accept_index[request]
        paths.append(("I14", [int(row) - start for row in flat if row != -1]))
    if outcome.accept_length is not None and request < len(outcome.accept_length):
        paths.append(("I13", nodes[: max(int(outcome.accept_length[request]), 0)]))
    return [(check, path) for check, path in paths if path]
