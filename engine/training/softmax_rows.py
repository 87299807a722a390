"""Cross-entropy of wide rows and its slope, written over the logits: one read for the sums, one for the slope.

A Triton kernel for CUDA (one program a row) and its plain torch twin.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # Triton has no build for this platform; the twin serves
    triton = None

TILE = 4096  # entries of one step of the kernel


def cross_entropy_rows_(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss float32 [rows] in nats and argmax int64 [rows]; ``logits`` [rows, V] become softmax less the label's 1.

    ``labels`` int64 [rows]. Of equal largest logits the first is the argmax.
    """
    if logits.is_cuda and triton is not None:
        return cross_entropy_rows_triton(logits, labels)
    return cross_entropy_rows_torch(logits, labels)


def cross_entropy_rows_torch(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The twin, in float32 or wider."""
    wide = logits if logits.dtype is torch.float64 else logits.float()
    total = wide.logsumexp(dim=-1)
    loss = total - wide.gather(1, labels[:, None])[:, 0]
    best = wide.argmax(dim=-1)
    slope = (wide - total[:, None]).exp()
    slope[torch.arange(len(labels), device=labels.device), labels] -= 1
    logits.copy_(slope)
    return loss.float(), best


def cross_entropy_rows_triton(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The kernel; ``logits`` contiguous."""
    rows, width = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    best = torch.empty(rows, dtype=torch.int64, device=logits.device)
    _kernel[(rows,)](logits, labels, loss, best, width, TILE=TILE, num_warps=8)
    return loss, best


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(logits, labels, loss, best, width, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        base = logits + row * width
        label = tl.load(labels + row)
        highest, total, where = float("-inf"), 0.0, width
        wanted = tl.load(base + label).to(tl.float32)
        for start in range(0, width, TILE):
            place = start + tl.arange(0, TILE)
            x = tl.load(base + place, mask=place < width, other=float("-inf")).to(tl.float32)
            high = tl.max(x, 0)
            first = tl.min(tl.where(x == high, place, width), 0)
            where = tl.where(high > highest, first, where)
            higher = tl.maximum(high, highest)
            total = total * tl.exp(highest - higher) + tl.sum(tl.exp(x - higher), 0)
            highest = higher
        log_total = highest + tl.log(total)
        for start in range(0, width, TILE):
            place = start + tl.arange(0, TILE)
            x = tl.load(base + place, mask=place < width, other=float("-inf")).to(tl.float32)
            slope = tl.exp(x - log_total) - tl.where(place == label, 1.0, 0.0)
            tl.store(base + place, slope.to(logits.dtype.element_ty), mask=place < width)
        tl.store(loss + row, log_total - wanted)
        tl.store(best + row, where.to(tl.int64))
