"""The DDTree builder: the budget's most probable prefixes under a drafter's per-position marginals.

Best-first search as in DDTree (Algorithm 1 of the paper by Ringel et al.): pop the most probable prefix, push its next
sibling and its first child. A prefix's log-weight is the sum of its tokens' log-probabilities, so the popped order is
non-increasing and parents come before children. Ties go to the lexicographically smaller tuple of ranks (a prefix
before its extensions), equal logits rank by token id: the tree is a function of the logits alone.

Covered: exact, deterministic, any budget; as options of other engines, a cap on the ranks that a depth may use (top-k),
one on the depth, and a spine: the chain of best tokens is in the tree before anything else. Not covered: on the device
(:mod:`engine.decoding.device_tree`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.models.device import to_host
from engine.step import Float64, Int64
from engine.tree import DraftTree


@dataclass(frozen=True, eq=False)
class Candidates:
    """The best tokens of each draft position."""

    log_probs: Float64  # [L, K], descending; over the full vocabulary
    tokens: Int64  # [L, K]


@dataclass(frozen=True, eq=False)
class BuiltTree:
    """A tree with the drafter's rank of each node's token at its depth (0 is best; the root has 0)."""

    tree: DraftTree
    ranks: Int64  # [num_nodes]
    candidates: Candidates  # that it was grown from, whatever the caps


def top_candidates(logits: Tensor, count: int) -> Candidates:
    """The ``count`` best tokens a position, equal logits by lower id.

    ``logits``: [L, V], any float dtype, raw. -inf marks a token that cannot be drafted; it never becomes a node.
    A GPU sorts whole rows and hands over the best alone; a CPU, which would take long, partitions them.
    """
    count = min(count, logits.shape[1])
    log_probs = torch.log_softmax(logits.double(), dim=-1)
    log_probs = log_probs.masked_fill(log_probs.isnan(), -torch.inf)  # from a row of -inf alone
    log_probs = log_probs.clamp(max=0.0)
    if not logits.is_cpu:
        return _sorted_candidates(log_probs, count)
    table = log_probs.numpy()
    tokens = np.array([_best(row, count) for row in table], np.int64).reshape(len(table), count)
    return Candidates(np.take_along_axis(table, tokens, axis=1), tokens)


def _sorted_candidates(log_probs: Tensor, count: int) -> Candidates:
    """The same from a stable sort of ``log_probs`` float64 [L, V], in one copy to the host."""
    best, ids = (part[:, :count] for part in log_probs.sort(dim=-1, descending=True, stable=True))
    both = to_host(torch.stack([best, ids.double()])).numpy()  # float64 holds every id
    return Candidates(both[0], both[1].astype(np.int64))


def _best(row: Float64, count: int) -> Int64:
    """Ids of the ``count`` largest entries; a partition finds the threshold, ties at it go to the lower ids."""
    threshold = (
        np.partition(row, len(row) - count)[len(row) - count] if count < len(row) else -np.inf
    )
    ids = np.flatnonzero(row >= threshold)
    return ids[np.argsort(-row[ids], kind="stable")][:count].astype(np.int64)


def build_tree(
    logits: Tensor,
    root: int,
    budget: int,
    topk: int | None = None,
    *,
    max_depth: int | None = None,
    spine: bool = False,
    kept: int = 0,
) -> BuiltTree:
    """Tree of ``root`` and at most ``budget`` nodes; fewer where the candidates run out.

    ``logits``: [L, V] of draft positions 1 … L. ``topk``: ranks that a depth may use, None for as many as the budget;
    ``max_depth``: None for L; ``spine``: see :func:`grow`. At least ``kept`` candidates a position are returned.
    """
    return build_trees(
        logits[None], [root], budget, topk, max_depth=max_depth, spine=spine, kept=kept
    )[0]


def build_trees(
    logits: Tensor,
    roots: Sequence[int],
    budget: int,
    topk: int | None = None,
    *,
    max_depth: int | None = None,
    spine: bool = False,
    kept: int = 0,
) -> list[BuiltTree]:
    """:func:`build_tree` of every request, ``logits`` [bs, L, V]; the host gets all candidates at once."""
    if budget < 0 or (topk is not None and topk < 1):
        raise ValueError(f"expected budget >= 0 and topk >= 1, found budget {budget}, topk {topk}")
    width = budget if topk is None else min(topk, budget)
    batch, length, _ = logits.shape
    found = top_candidates(logits.flatten(0, 1), max(width, kept))
    log_probs, tokens = (a.reshape(batch, length, -1) for a in (found.log_probs, found.tokens))
    return [
        grow(
            Candidates(log_probs[i], tokens[i]),
            root,
            budget,
            width,
            max_depth=max_depth,
            spine=spine,
        )
        for i, root in enumerate(roots)
    ]


def grow(
    candidates: Candidates,
    root: int,
    budget: int,
    width: int | None = None,
    *,
    max_depth: int | None = None,
    spine: bool = False,
) -> BuiltTree:
    """Best-first search over the first ``width`` candidates of the first ``max_depth`` positions.

    ``spine``: the chain of best tokens, as long as it is, takes its nodes first, the search gets the others. Nodes are
    numbered by weight in either case.
    """
    length, ranked = candidates.tokens.shape
    width = ranked if width is None else min(width, ranked)
    length = length if max_depth is None else min(max_depth, length)
    table = candidates.log_probs[:length, :width].tolist()
    found = _spine(table, budget) if spine else {}
    for path, weight in _best_paths(table):
        if len(found) >= budget:
            break
        found[path] = weight
    return _numbered(found, candidates, root)


Path = tuple[int, ...]  # ranks from depth 1 on


def _spine(table: list[list[float]], budget: int) -> dict[Path, float]:
    """Prefixes of best tokens with their weights."""
    found: dict[Path, float] = {}
    weight = 0.0
    for depth, row in enumerate(table[:budget], start=1):
        weight += row[0] if row else -np.inf
        if not np.isfinite(weight):
            break
        found[(0,) * depth] = weight
    return found


def _best_paths(table: list[list[float]]) -> Iterator[tuple[Path, float]]:
    """All prefixes of finite weight, the most probable first."""
    heap: list[tuple[float, Path, float]] = []  # negative weight, path, weight of the parent

    def push(path: Path, parent: float) -> None:
        depth, rank = len(path), path[-1]
        if depth <= len(table) and rank < len(table[depth - 1]):
            weight = parent + table[depth - 1][rank]
            if np.isfinite(weight):
                heapq.heappush(heap, (-weight, path, parent))

    push((0,), 0.0)
    while heap:
        negative, path, parent = heapq.heappop(heap)
        yield path, -negative
        push((*path[:-1], path[-1] + 1), parent)
        push((*path, 0), -negative)


def _numbered(found: dict[Path, float], candidates: Candidates, root: int) -> BuiltTree:
    """Nodes in the order of their weight, ties by the tuple of ranks: a parent before its children."""
    order = sorted(found, key=lambda path: (-found[path], path))
    number = {(): 0} | {path: node for node, path in enumerate(order, start=1)}
    tokens = [root, *(int(candidates.tokens[len(path) - 1, path[-1]]) for path in order)]
    tree = DraftTree(
        np.array([-1, *(number[path[:-1]] for path in order)], np.int64),
        np.array(tokens, np.int64),
        np.array([0.0, *(found[path] for path in order)]),
    )
    return BuiltTree(tree, np.array([0, *(path[-1] for path in order)], np.int64), candidates)
