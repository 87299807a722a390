"""Triton kernels of greedy choices: the best key of each chunk of a row, then of its chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.graphs.candidates_kernel import LEAST, LOW_WORD, keys_of


@triton.jit  # type: ignore[untyped-decorator]
def chunk_maxima(logits, keys, vocab, row_stride, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Grid (rows, chunks)."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    there = token < vocab
    value = tl.load(logits + row * row_stride + token, mask=there, other=float("-inf"))
    best = tl.max(tl.where(there, keys_of(value.to(tl.float32), token), LEAST), 0)
    tl.store(keys + row * tl.num_programs(1) + chunk, best)


@triton.jit  # type: ignore[untyped-decorator]
def best_chunks(keys, out, chunks, CHUNKS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Grid (rows,)."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.arange(0, CHUNKS)
    best = tl.max(tl.load(keys + row * chunks + chunk, mask=chunk < chunks, other=LEAST), 0)
    tl.store(out + row, ((best & LOW_WORD) ^ LOW_WORD))
