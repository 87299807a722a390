"""Faults of the mask's content and freshness."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from engine.decoding.stages import Stages
from engine.tree import DraftTree


class _OnlyOnce:
    """Refreshes each buffer the first time it is asked to, and never again."""

    def __init__(self, stages: Stages) -> None:
        self._refresh, self._seen = stages.refresh_mask, set[int]()

    def __call__(self, buffer: Tensor, mask: Tensor) -> None:
        if buffer.data_ptr() not in self._seen:
            self._seen.add(buffer.data_ptr())
            self._refresh(buffer, mask)


def stale_mask(stages: Stages) -> Stages:
    """Only the first replay writes the mask; later ones read what it left."""
    return replace(stages, refresh_mask=_OnlyOnce(stages))


def padding_leak(stages: Stages) -> Stages:
    """The columns of padding rows are visible to every real node."""

    def tree_mask(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
        mask = stages.tree_mask(tree, prefix_len, q_len)
        mask[: tree.num_nodes, prefix_len + tree.num_nodes :] = True
        return mask

    return replace(stages, tree_mask=tree_mask)


def sibling_leak(stages: Stages) -> Stages:
    """A node sees the earlier children of its parent."""

    def tree_mask(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
        mask = stages.tree_mask(tree, prefix_len, q_len)
        for below in tree.children:
            for place, node in enumerate(below):
                for earlier in below[:place]:
                    mask[node, prefix_len + earlier] = True
        return mask

    return replace(stages, tree_mask=tree_mask)


def causal_mask(stages: Stages) -> Stages:
    """Every row sees all rows before it, as in a chain."""

    def tree_mask(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
        return torch.ones(q_len, prefix_len + q_len, dtype=torch.bool).tril(prefix_len)

    return replace(stages, tree_mask=tree_mask)


def hidden_ancestor(stages: Stages) -> Stages:
    """A node does not see its parent, unless that is the root."""

    def tree_mask(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
        mask = stages.tree_mask(tree, prefix_len, q_len)
        for node, parent in enumerate(tree.parents.tolist()):
            if parent > 0:
                mask[node, prefix_len + parent] = False
        return mask

    return replace(stages, tree_mask=tree_mask)


def first_requests_tree(stages: Stages) -> Stages:
    """Every request of a batch gets the tree columns of the first one."""
    first: list[DraftTree] = []

    def tree_mask(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
        return stages.tree_mask(first[0], prefix_len, q_len)

    def begin(trees: list[DraftTree]) -> list[DraftTree]:
        first[:] = trees[:1]
        return stages.begin(trees)

    return replace(stages, tree_mask=tree_mask, begin=begin)
