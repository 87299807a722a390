"""The token that each row of logits chooses greedily: the largest, of equal ones the first; NaN above all.

A Triton kernel on a GPU, where torch's own argmax leaves a row to few processors; torch elsewhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
except ImportError:  # Triton has no build for this platform; torch serves
    triton = None
else:
    from engine.graphs import choices_kernel as kernels

CHUNK = 4096  # logits of one program


def choices(logits: Tensor) -> Tensor:
    """int64 [rows] of ``logits`` [rows, V]."""
    if logits.is_cuda and triton is not None and logits.dtype is not torch.float64:
        return choices_triton(logits)
    return logits.argmax(dim=-1)


def choices_triton(logits: Tensor) -> Tensor:
    """:func:`choices` by the kernels; float32 or 16 bits, rows contiguous."""
    rows, vocab = logits.shape
    chunks = triton.cdiv(vocab, CHUNK)
    keys = torch.empty(rows, chunks, dtype=torch.int64, device=logits.device)
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        kernels.chunk_maxima[(rows, chunks)](
            logits, keys, vocab, logits.stride(0), CHUNK=CHUNK, num_warps=4
        )
        kernels.best_chunks[(rows,)](
            keys, out, chunks, CHUNKS=triton.next_power_of_2(chunks), num_warps=1
        )
    return out
