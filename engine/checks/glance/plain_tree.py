"""A draft tree as plain lists, derived in one pass. Covered: trees whose every parent comes before its children."""

from __future__ import annotations

from typing import NamedTuple

from engine.step import TreeRecord


class PlainTree(NamedTuple):
    """One request's tree. A row is the integer whose byte ``n`` is 1 where the node sees node ``n``."""

    parents: list[int]
    tokens: list[int] | None
    depths: list[int]
    rows: list[int]


def plain_tree(record: TreeRecord) -> PlainTree | None:
    """The tree; None for one that is not covered."""
    parents: list[int] = record.parents.tolist()
    above = parents[1:]
    if parents[:1] != [-1] or min(above, default=0) < 0:
        return None
    depths, rows, cell = [0], [1], 1
    try:
        for parent in above:
            cell <<= 8
            depths.append(depths[parent] + 1)
            rows.append(rows[parent] | cell)
    except IndexError:  # the parent comes later, or not at all
        return None
    tokens = None if record.tokens is None else record.tokens.tolist()
    return PlainTree(parents, tokens, depths, rows)


def links_of(parents: list[int]) -> tuple[list[int], list[int]]:
    """``(retrieve_next_token, retrieve_next_sibling)``: first child and next sibling of each node, or -1."""
    first, sibling = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        parent = parents[node]
        sibling[node] = first[parent]
        first[parent] = node
    return first, sibling
