"""Fingerprints of KV rows: which node's keys and values a slot holds, before and after the move, layer by layer.

A row's fingerprint is a sum of its bytes with fixed odd weights in wrapping 64-bit integers: equal rows have equal
fingerprints, different rows differ but for chance. It is computed where the rows are; only the sums are copied.
"""

from __future__ import annotations

from typing import Any

import torch

from engine.sglang.host import NotCopied

STEP = -7046029254386353131  # odd; spreads neighbouring weights over all 64 bits


def fingerprints(pool: Any, slots: torch.Tensor) -> torch.Tensor:
    """int64 [layers, slots] of a pool with ``k_buffer`` and ``v_buffer``, or ``kv_buffer``: lists of [slots, …]."""
    groups = [getattr(pool, name, None) for name in ("k_buffer", "v_buffer", "kv_buffer")]
    known = [group for group in groups if isinstance(group, list) and group]
    if not known:
        raise NotCopied(
            f"{type(pool).__name__}: expected k_buffer and v_buffer, or kv_buffer, found none"
        )
    layers = []
    for buffers in zip(*known, strict=True):
        sums = [_rows(buffer, slots) * (2 * place + 1) for place, buffer in enumerate(buffers)]
        layers.append(torch.stack(sums).sum(0))
    return torch.stack(layers)


def _rows(buffer: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    rows = buffer.index_select(0, slots).flatten(1).contiguous().view(torch.uint8).long()
    weights = torch.arange(1, 2 * rows.shape[1], 2, device=rows.device) * STEP
    return (rows * weights).sum(1)
