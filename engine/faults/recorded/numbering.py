"""The same trees in other rows: nodes in another order, or fewer rows than nodes. Rests on ``engine.minimize``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from engine.faults.recorded.edit import with_requests, with_tree
from engine.minimize.relayout import relayout
from engine.minimize.selection import everything
from engine.step import Int64, Links, Request, VerifyStep
from engine.tree import DraftTree

Order = Callable[[DraftTree], list[int]]  # node numbers in their new order, the root first


def renumbered(step: VerifyStep, order: Order) -> VerifyStep:
    """The step whose nodes come in another order: rows, mask, links and accepted paths go along.

    Log-weights, which tell in which order a builder took the nodes, are left out.
    """
    chosen = everything(step)
    kept = tuple(
        replace(one, nodes=tuple(order(request.tree.tree)))
        for one, request in zip(chosen.requests, step.requests, strict=True)
    )
    moved = relayout(step, replace(chosen, requests=kept))
    moved = with_requests(moved, lambda number, request: with_tree(request, log_weights=None))
    return replace(moved, links=_links(moved))


def depth_first(tree: DraftTree) -> list[int]:
    """Each node before the nodes below it, a subtree at a time."""
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += reversed(tree.children[node])
    return order


def first_rows(step: VerifyStep, q_len: int) -> VerifyStep:
    """The step cut to the first ``q_len`` rows of each request, nodes in later rows included; budget goes along.

    Accepted paths that lead to a lost node are left as they are.
    """
    chosen = everything(step)
    kept = tuple(replace(one, nodes=one.nodes[:q_len]) for one in chosen.requests)
    return relayout(step, replace(chosen, requests=kept, q_len=q_len))


def with_trees_of(step: VerifyStep, whole: VerifyStep) -> VerifyStep:
    """The step with the trees that another record of it holds."""

    def grown(number: int, request: Request) -> Request:
        other = whole.requests[number]
        return replace(request, tree=other.tree, counted_nodes=other.counted_nodes)

    return with_requests(step, grown)


def _links(step: VerifyStep) -> Links:
    """First child and next sibling in the order of the nodes; as many entries as were recorded."""
    recorded = step.links.retrieve_next_token
    pairs = [
        _first_and_next(request.tree.tree, None if recorded is None else len(recorded[number]))
        for number, request in enumerate(step.requests)
    ]
    return Links(tuple(first for first, _ in pairs), tuple(following for _, following in pairs))


def _first_and_next(tree: DraftTree, length: int | None) -> tuple[Int64, Int64]:
    first, following = (np.full(length or tree.num_nodes, -1, np.int64) for _ in range(2))
    for node, below in enumerate(tree.children):
        for earlier, later in pairwise(below):
            following[earlier] = later
        first[node] = below[0] if below else -1
    return first, following
