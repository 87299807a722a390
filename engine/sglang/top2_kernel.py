"""Triton source of the two best tokens of a part of a row; see :mod:`engine.sglang.top2`."""
# mypy: ignore-errors
# ruff: noqa: N803

import triton.language as tl


def top2_rows(logits, found, row_stride, vocab_size, BLOCK: tl.constexpr):
    """One program a row and ``BLOCK`` of its columns; columns beyond the vocabulary count as -inf."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    beyond: tl.constexpr = 2147483647
    x = tl.load(logits + row * row_stride + at, mask=at < vocab_size, other=-float("inf")).to(
        tl.float32
    )
    first_nan = tl.min(tl.where(x != x, at, beyond), 0)
    top = tl.max(x, 0)
    top_at = tl.min(tl.where(x == top, at, beyond), 0)
    next_best = tl.max(tl.where(at == top_at, -float("inf"), x), 0)
    next_at = tl.min(tl.where((x == next_best) & (at != top_at), at, beyond), 0)
    broken = first_nan != beyond
    top_at = tl.where(broken, first_nan, top_at)
    top = tl.where(broken, float("nan"), top)
    own = found + (row * tl.num_programs(1) + part) * 4
    tl.store(own, top_at)
    tl.store(own + 1, next_at)
    tl.store(own + 2, top.to(tl.int32, bitcast=True))
    tl.store(own + 3, next_best.to(tl.int32, bitcast=True))
