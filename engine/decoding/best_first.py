"""The DDTree builder: the budget's most probable prefixes under a drafter's per-position marginals.

Best-first search as in DDTree (Algorithm 1 of the paper by Ringel et al.): pop the most probable prefix, push its next
sibling and its first child. A prefix's log-weight is the sum of its tokens' log-probabilities, so the popped order is
non-increasing and parents come before children. Ties go to the lexicographically smaller tuple of ranks (a prefix
before its extensions), equal logits rank by token id: the tree is a function of the logits alone.

Covered: exact, deterministic, any budget, an optional cap on the ranks a depth may use. Not covered: on the device.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

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


def top_candidates(logits: Tensor, count: int) -> Candidates:
    """The ``count`` best tokens a position, equal logits by lower id.

    ``logits``: [L, V], any float dtype, raw. -inf marks a token that cannot be drafted; it never becomes a node.
    """
    count = min(count, logits.shape[1])
    log_probs = torch.log_softmax(logits.double(), dim=-1)
    log_probs = log_probs.masked_fill(log_probs.isnan(), -torch.inf)  # from a row of -inf alone
    table = log_probs.clamp(max=0.0).cpu().numpy()
    tokens = np.array([_best(row, count) for row in table], np.int64).reshape(len(table), count)
    return Candidates(np.take_along_axis(table, tokens, axis=1), tokens)


def _best(row: Float64, count: int) -> Int64:
    """Ids of the ``count`` largest entries; a partition finds the threshold, ties at it go to the lower ids."""
    threshold = (
        np.partition(row, len(row) - count)[len(row) - count] if count < len(row) else -np.inf
    )
    ids = np.flatnonzero(row >= threshold)
    return ids[np.argsort(-row[ids], kind="stable")][:count].astype(np.int64)


def build_tree(logits: Tensor, root: int, budget: int, topk: int | None = None) -> BuiltTree:
    """Tree of ``root`` and at most ``budget`` nodes; fewer where the candidates run out.

    ``logits``: [L, V] of draft positions 1 … L. ``topk``: ranks that a depth may use, None for as many as the budget.
    """
    if budget < 0 or (topk is not None and topk < 1):
        raise ValueError(f"expected budget >= 0 and topk >= 1, found budget {budget}, topk {topk}")
    width = budget if topk is None else min(topk, budget)
    if width == 0 or len(logits) == 0:
        return BuiltTree(
            DraftTree(np.array([-1]), np.array([root]), np.zeros(1)), np.zeros(1, np.int64)
        )
    return grow(top_candidates(logits, width), root, budget)


def grow(candidates: Candidates, root: int, budget: int) -> BuiltTree:
    """Best-first search over the candidates."""
    horizon, width = candidates.tokens.shape
    parents, tokens, weights, ranks = [-1], [root], [0.0], [0]
    heap: list[tuple[float, tuple[int, ...], int]] = []

    def push(parent: int, path: tuple[int, ...]) -> None:
        """Offer the child of ``parent`` that the last rank of ``path`` names."""
        depth, rank = len(path), path[-1]
        if depth <= horizon and rank < width:
            weight = weights[parent] + float(candidates.log_probs[depth - 1, rank])
            if np.isfinite(weight):
                heapq.heappush(heap, (-weight, path, parent))

    push(0, (0,))
    while heap and len(parents) <= budget:
        weight, path, parent = heapq.heappop(heap)
        node = len(parents)
        parents.append(parent)
        tokens.append(int(candidates.tokens[len(path) - 1, path[-1]]))
        weights.append(-weight)
        ranks.append(path[-1])
        push(parent, (*path[:-1], path[-1] + 1))
        push(node, (*path, 0))
    tree = DraftTree(np.array(parents, np.int64), np.array(tokens, np.int64), np.array(weights))
    return BuiltTree(tree, np.array(ranks, np.int64))
