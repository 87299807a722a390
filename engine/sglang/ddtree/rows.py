"""The rows that the target verifies: tokens, positions, and the flat tree mask of SGLang's full layout.

A request has ``width`` rows, one a node; rows beyond its nodes are padding, see the prefix and themselves, and no node
sees them. The mask holds for each row its request's prefix columns (True) and then one column a row: bool, True =
allowed, request after request without gaps, ``sum(width * (prefix + width))`` cells. Triton skips the prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.sglang.ddtree.faults import Fault, broken_depths, broken_visible


@dataclass(frozen=True, eq=False)
class VerifyRows:
    """What the target's forward gets, all on the trees' device; rows = bs * width."""

    draft_token: Tensor  # int64 [rows]
    positions: Tensor  # int64 [rows]
    visible: Tensor  # bool [bs, width, width], tree columns
    cells: Tensor  # int64 [bs, width, width], where these lie in the mask

    def custom_mask(self, seq_lens_sum: int) -> Tensor:
        """Mask bool [cells], whose length the batch alone does not fix; ``seq_lens_sum``: of prefixes, on the host."""
        batch, width, _ = self.visible.shape
        return flat_mask(self.visible, self.cells, width * (seq_lens_sum + batch * width))


def verify_rows(trees: TreeTensors, seq_lens: Tensor, fault: Fault | None = None) -> VerifyRows:
    """Rows of a batch behind prefixes of ``seq_lens`` [bs] tokens. Shapes are fixed: a CUDA graph may capture it."""
    prefix = seq_lens.to(torch.int64)
    depths = broken_depths(fault, trees.depths)
    return VerifyRows(
        trees.tokens.flatten(),
        (prefix[:, None] + depths).flatten(),
        broken_visible(fault, trees.visible.bool()),
        tree_cells(prefix, trees.tokens.shape[1]),
    )


def flat_mask(visible: Tensor, places: Tensor, cells: int) -> Tensor:
    """Mask bool [cells] of tree columns ``visible`` bool [bs, width, width] at ``places``; prefix columns are True.

    Example: prefixes [2, 0] and width 2 take 2 * 4 + 2 * 2 = 12 cells; row 1 of request 1 starts at cell 10.
    """
    mask = torch.ones(cells, dtype=torch.bool, device=visible.device)
    mask.scatter_(0, places.flatten(), visible.flatten())
    return mask


def tree_cells(prefix: Tensor, width: int) -> Tensor:
    """Cell of each tree column, int64 [bs, width, width]."""
    stride = prefix + width
    start = (width * stride).cumsum(0) - width * stride
    row = torch.arange(width, device=prefix.device)
    first = start[:, None] + row * stride[:, None] + prefix[:, None]
    return first[:, :, None] + row
