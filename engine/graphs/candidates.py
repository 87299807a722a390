"""The best tokens of each draft position on the device: what ``best_first.top_candidates`` finds, without the host.

Covered: float32 and 16-bit logits, ties by token id, -inf, rows that are not finite (nothing can be drafted there). Not
covered: more than 256 tokens a position; float64, which the host's builder takes.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
except ImportError:  # Triton has no build for this platform; the twin serves
    triton = None
else:
    from engine.graphs import candidates_kernel as kernels

MOST = 256  # tokens a position
MAX_GROUPS = 4096  # of a row: one program looks through their maxima
CHUNK = 4096  # logits of one program


def best_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities float64 and tokens int64 [rows, count], descending, of ``logits`` [rows, V].

    Log-probabilities are over the whole row; -inf where a token cannot be drafted. ``count`` at most V and 256.
    """
    run = best_tokens_triton if logits.is_cuda and triton is not None else best_tokens_torch
    return run(logits, count)


def best_tokens_triton(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """:func:`best_tokens` by the kernels; rows contiguous."""
    _refuse(logits, count)
    (rows, vocab), device = logits.shape, logits.device
    group = 64
    while -(-vocab // group) > MAX_GROUPS:
        group *= 2
    groups, chunks = -(-vocab // group), -(-vocab // CHUNK)
    best = triton.next_power_of_2(count)
    maxima = torch.empty(rows, groups, dtype=torch.int64, device=device)
    tops = torch.empty(rows, chunks, dtype=torch.float32, device=device)
    sums = torch.empty(rows, chunks, dtype=torch.float64, device=device)
    log_probs = torch.empty(rows, count, dtype=torch.float64, device=device)
    tokens = torch.empty(rows, count, dtype=torch.int64, device=device)
    if not rows:
        return log_probs, tokens
    kernels.group_maxima[(rows, chunks)](
        logits,
        maxima,
        tops,
        sums,
        vocab,
        logits.stride(0),
        groups,
        CHUNK_GROUPS=CHUNK // group,
        GROUP=group,
        num_warps=8,
    )
    kernels.best_of_groups[(rows,)](
        logits,
        maxima,
        tops,
        sums,
        torch.empty(rows, 2 * best, dtype=torch.int64, device=device),
        log_probs,
        tokens,
        vocab,
        logits.stride(0),
        groups,
        chunks,
        count,
        GROUPS=triton.next_power_of_2(groups),
        CHUNKS=triton.next_power_of_2(chunks),
        GROUP=group,
        BEST=best,
        TOKEN_BITS=vocab.bit_length(),
        num_warps=8,
    )
    return log_probs, tokens


def best_tokens_torch(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """:func:`best_tokens` in plain torch: a stable sort of whole rows."""
    _refuse(logits, count)
    log_probs = torch.log_softmax(logits.double(), dim=-1)
    log_probs = log_probs.masked_fill(log_probs.isnan(), -torch.inf).clamp(max=0.0)
    _, tokens = logits.float().sort(dim=-1, descending=True, stable=True)
    tokens = tokens[:, :count].contiguous()
    return log_probs.gather(1, tokens), tokens


def _refuse(logits: Tensor, count: int) -> None:
    """Raise ``ValueError`` for what the kernels have no room for."""
    vocab = logits.shape[1]
    if not 1 <= count <= min(vocab, MOST):
        raise ValueError(f"best_tokens: expected a count of 1 … {min(vocab, MOST)}, found {count}")
    if logits.dtype is torch.float64:
        raise ValueError("best_tokens: expected float32 or 16-bit logits, found float64")
    if logits.stride(1) != 1:
        raise ValueError(
            f"best_tokens: expected rows that are contiguous, found stride {logits.stride(1)}"
        )
