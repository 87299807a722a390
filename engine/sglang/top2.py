"""The two best tokens of each part of each row of logits: one kernel on a GPU, torch elsewhere.

A part of a row has ``BLOCK`` columns and is one program, so that a few rows keep many processors busy; parts are put
together where there is time for it, in the writer's process (:func:`engine.sglang.outcome.best_of_parts`). Of each part
the result has int32 [best, second, bits of the best logit, bits of the second], the logits as float32. Of equal logits
the lower token comes first, as in ``torch.argmax``; NaN is larger than everything, and the second of a part that has
one is not specified. A part of one column has a second that is no token, with -inf.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from engine.sglang.launch import Launch

BLOCK = 8192  # columns of a part


def top2(logits: torch.Tensor) -> torch.Tensor:
    """int32 [rows, parts, 4] of logits [rows, vocabulary] with more than one token."""
    if not logits.is_cuda:
        return top2_torch(logits)
    rows = logits if logits.stride(1) == 1 else logits.contiguous()
    count, vocab = rows.shape
    parts = -(-vocab // BLOCK)
    found = torch.empty(count, parts, 4, dtype=torch.int32, device=logits.device)
    _rows((count, parts), (rows, found, rows.stride(0), vocab), 8, BLOCK=BLOCK)
    return found


def top2_torch(logits: torch.Tensor) -> torch.Tensor:
    """The plain twin: one part."""
    best = logits.argmax(-1, keepdim=True)
    rest = logits.scatter(1, best, -torch.inf)
    largest = (rest == rest.amax(-1, keepdim=True)).scatter(1, best, False)
    second = largest.int().argmax(-1, keepdim=True)
    tokens = torch.cat([best, second], 1)
    values = logits.gather(1, tokens).float().view(torch.int32)
    return torch.cat([tokens.int(), values], 1)[:, None]


@cache
def _kernel() -> Any:
    """Compiled where there is a GPU: Triton is imported then alone."""
    import triton

    from engine.sglang.top2_kernel import top2_rows

    return triton.jit(top2_rows)


_rows = Launch(_kernel)
