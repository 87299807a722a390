"""The two best tokens of each row of logits in one pass: one kernel on a GPU, torch elsewhere.

A row of the result is int32 [best, second, bits of the best logit, bits of the second], the logits as float32. Of equal
logits the lower token comes first, as in ``torch.argmax``; NaN is larger than everything, and the second of a row that
has one is not specified.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from engine.sglang.launch import Launch

BLOCK = 4096  # logits that a program compares at once


def top2(logits: torch.Tensor) -> torch.Tensor:
    """int32 [rows, 4] of logits [rows, vocabulary] with more than one token."""
    if not logits.is_cuda:
        return top2_torch(logits)
    found = torch.empty(len(logits), 4, dtype=torch.int32, device=logits.device)
    rows = logits if logits.stride(1) == 1 else logits.contiguous()
    _rows((len(rows),), (rows, found, rows.stride(0), rows.shape[1]), 8, BLOCK=BLOCK)
    return found


def top2_torch(logits: torch.Tensor) -> torch.Tensor:
    """The plain twin."""
    best = logits.argmax(-1, keepdim=True)
    second = logits.scatter(1, best, -torch.inf).argmax(-1, keepdim=True)
    tokens = torch.cat([best, second], 1)
    return torch.cat([tokens.int(), logits.gather(1, tokens).float().view(torch.int32)], 1)


@cache
def _kernel() -> Any:
    """Compiled where there is a GPU: Triton is imported then alone."""
    import triton

    from engine.sglang.top2_kernel import top2_rows

    return triton.jit(top2_rows)


_rows = Launch(_kernel)
