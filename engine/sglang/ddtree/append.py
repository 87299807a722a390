"""Accepted rows for the drafter's cache, in shapes that do not depend on how many were accepted.

Each request has ``steps`` entries; those beyond its path are padding: row 0, position 0, slot 0, where SGLang's pools
let padding be written.

Nobody has looked at stops by then, so rows that a stop cuts off are written as well. Their slots are given back, and
who gets a slot writes the drafter's KV there, on the same stream, before it is read: a prompt's rows when it was
extended, the drafter's block in its own forward, and a tree's rows here once they are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.sglang.ddtree.accept import Accepted


@dataclass(frozen=True, eq=False)
class Appended:
    """What goes where, all int64 [bs * steps]."""

    rows: Tensor  # of the target's forward, request * width + node
    positions: Tensor
    slots: Tensor


def appended(accepted: Accepted, seq_lens: Tensor, slots: Tensor) -> Appended:
    """Of paths behind prefixes of ``seq_lens`` [bs]; ``slots`` int64 [bs * width]: of the target's rows."""
    path = accepted.path
    batch, steps = path.shape
    real = path >= 0
    first = torch.arange(batch, device=path.device) * (len(slots) // batch)
    rows = torch.where(real, path + first[:, None], 0)
    index = torch.arange(steps, device=path.device)
    positions = torch.where(real, seq_lens.to(torch.int64)[:, None] + index, 0)
    return Appended(
        rows.flatten(), positions.flatten(), torch.where(real, slots[rows], 0).flatten()
    )
