"""Faults of the rotary positions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from engine.decoding.stages import Stages
from engine.tree import DraftTree


def flattened_positions(stages: Stages) -> Stages:
    """Prefix length + row number instead of prefix length + depth."""

    def tree_positions(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
        return prefix_len + torch.arange(q_len)

    return replace(stages, tree_positions=tree_positions)


def lagging_positions(stages: Stages) -> Stages:
    """Positions begin one place early: the last accepted token was not counted."""

    def tree_positions(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
        return stages.tree_positions(tree, prefix_len, q_len) - 1

    return replace(stages, tree_positions=tree_positions)
