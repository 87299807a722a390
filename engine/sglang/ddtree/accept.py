"""Acceptance on the device: which path of each tree the target itself would have taken.

A node is *wanted* when its token is its parent's choice, and accepted when all nodes on its root path are wanted. The
children of a node have distinct tokens, so the accepted nodes are one path. No loop, no wait for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors


@dataclass(frozen=True, eq=False)
class Accepted:
    """Paths of a batch before stops cut them."""

    path: Tensor  # int64 [bs, steps]: accepted nodes, the root first; -1 padded
    said: Tensor  # int64 [bs, steps]: the target's choice at each of them, the bonus token last; -1 padded
    accept_length: Tensor  # int64 [bs], root included
    packed: Tensor  # int64 [bs, 2 * steps + 1]: these three side by side, for one copy to the host


def accept(trees: TreeTensors, predict: Tensor, steps: int) -> Accepted:
    """Accepted paths for the target's choices ``predict`` int64 [bs, nodes]; no tree is deeper than ``steps - 1``."""
    batch, nodes = predict.shape
    node = torch.arange(nodes, device=predict.device)
    real = node < trees.counts[:, None]
    wanted = trees.tokens == predict.gather(1, trees.parents.clamp(min=0))
    wanted = (wanted | (node == 0)) & real
    accepted = ~(trees.visible.bool() & ~wanted[:, None, :]).any(dim=-1)
    place = torch.where(
        accepted, trees.depths, steps
    )  # rejected nodes meet in a column that is cut off
    path = torch.full((batch, steps + 1), -1, dtype=torch.int64, device=predict.device)
    path = path.scatter_(1, place, node.expand(batch, -1))[:, :steps]
    said = predict.gather(1, path.clamp(min=0)).masked_fill(path < 0, -1)
    length = accepted.sum(dim=1)
    return Accepted(path, said, length, torch.cat([path, said, length[:, None]], dim=1))
