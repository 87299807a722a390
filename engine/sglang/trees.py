"""Trees out of what their builders handed out: parents a request, and the rows that are nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.sglang.raw import RawStep
from engine.step import Int64

ORPHAN = -1


def parents_of(step: RawStep, tokens: Int64) -> list[Int64]:
    """Parents of each live request's nodes; ``tokens`` int64 [requests, rows]. Raises ``ValueError``."""
    count, rows = tokens.shape
    kind = step.tree.kind
    if kind == "chain":
        return [np.arange(-1, rows - 1, dtype=np.int64)] * count
    if kind == "ngram":
        if step.tree.mask is None:
            raise ValueError("tree of NGRAM: expected a mask, found none")
        masks = step.tree.mask.reshape(count, rows, rows)
        return [
            _without_repeats(from_mask(mask), own) for mask, own in zip(masks, tokens, strict=True)
        ]
    if kind == "eagle":
        lists, chosen = step.ints("parent_list"), step.ints("selected")
        if lists is None or chosen is None:
            raise ValueError("tree of EAGLE: expected parent_list and selected, found none")
        pairs = zip(lists.reshape(count, -1), chosen.reshape(count, -1), strict=True)
        return [from_selection(listed, sel, step.tree.topk or 1) for listed, sel in pairs]
    return _from_links(step, count, rows)


def from_mask(mask: NDArray[Any]) -> Int64:
    """Parent of each row: the last row before it that it sees; [rows, rows], true where row sees column."""
    seen = np.tril(np.asarray(mask) != 0, -1)
    last = seen.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1)
    parents: Int64 = np.where(seen.any(axis=1), last, ORPHAN).astype(np.int64)
    return parents


def from_selection(parent_list: Int64, selected: Int64, topk: int) -> Int64:
    """EAGLE's rule: candidate ``s`` lies below the root if ``s // topk`` is 0, else below the candidate that
    ``parent_list[s // topk]`` names; a parent that was not selected makes an orphan.
    """
    place = {int(candidate): node + 1 for node, candidate in enumerate(selected)}
    parents = [ORPHAN]
    for candidate in selected.tolist():
        branch = candidate // topk
        known = 0 <= branch < len(parent_list)
        parents.append(
            0 if branch == 0 else place.get(int(parent_list[branch]), ORPHAN) if known else ORPHAN
        )
    return np.array(parents, np.int64)


def from_links(next_token: Int64, next_sibling: Int64) -> Int64:
    """Parents from first children and siblings; rows that no link reaches are orphans."""
    rows = len(next_token)
    parents = np.full(rows, ORPHAN, np.int64)
    for node in range(rows):
        child, steps = int(next_token[node]), 0
        while 0 < child < rows and parents[child] == ORPHAN and steps < rows:
            parents[child] = node
            child, steps = int(next_sibling[child]), steps + 1
    return parents


def _from_links(step: RawStep, count: int, rows: int) -> list[Int64]:
    tokens, siblings = step.ints("next_token"), step.ints("next_sibling")
    if tokens is None or siblings is None:
        raise ValueError(f"{step.algorithm}: expected a tree, a mask or links, found none")
    counts = step.ints("node_counts")  # told where rows beyond the nodes are padding
    sizes = [rows] * count if counts is None else counts.tolist()
    pairs = zip(tokens.reshape(count, rows), siblings.reshape(count, rows), sizes, strict=True)
    return [from_links(child[:size], sibling[:size]) for child, sibling, size in pairs]


def _without_repeats(parents: Int64, tokens: Int64) -> Int64:
    """NGRAM fills up with token 0 below the root: of these at the end, only the first can ever be reached."""
    end = len(parents)
    while end > 2 and _is_filler(parents, tokens, end - 1) and _is_filler(parents, tokens, end - 2):
        end -= 1
    return parents[:end]


def _is_filler(parents: Int64, tokens: Int64, node: int) -> bool:
    return bool(parents[node] == 0 and tokens[node] == 0)


def links_within(links: Int64, nodes: int) -> Int64:
    """Links of the nodes alone: one that leads to a row beyond them leads to a repeat, which ends no walk."""
    own = links.copy()
    own[:nodes][own[:nodes] >= nodes] = -1
    return own
