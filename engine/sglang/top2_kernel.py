"""Triton source of the two best tokens of a row; see :mod:`engine.sglang.top2`."""
# mypy: ignore-errors
# ruff: noqa: N803

import triton.language as tl


def top2_rows(logits, found, row_stride, vocab_size, BLOCK: tl.constexpr):
    """One program a row: each lane keeps the two best of its columns, then the lanes are compared."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    beyond: tl.constexpr = 2147483647
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    second = tl.full([BLOCK], -float("inf"), tl.float32)
    best_at, second_at = lanes, lanes + BLOCK
    nan_at = tl.full([BLOCK], beyond, tl.int32)
    for start in range(0, vocab_size, BLOCK):
        at = start + lanes
        x = tl.load(logits + row * row_stride + at, mask=at < vocab_size, other=-float("inf")).to(
            tl.float32
        )
        nan_at = tl.where((x != x) & (nan_at == beyond), at, nan_at)
        above, between = x > best, x > second
        second_at = tl.where(above, best_at, tl.where(between, at, second_at))
        second = tl.where(above, best, tl.where(between, x, second))
        best_at = tl.where(above, at, best_at)
        best = tl.where(above, x, best)
    top = tl.max(best, 0)
    top_at = tl.min(tl.where(best == top, best_at, beyond), 0)
    rest = tl.where(best_at == top_at, second, best)
    rest_at = tl.where(best_at == top_at, second_at, best_at)
    next_best = tl.max(rest, 0)
    next_at = tl.min(tl.where(rest == next_best, rest_at, beyond), 0)
    first_nan = tl.min(nan_at, 0)
    broken = first_nan != beyond
    top_at = tl.where(broken, first_nan, top_at)
    top = tl.where(broken, float("nan"), top)
    tl.store(found + row * 4, top_at)
    tl.store(found + row * 4 + 1, next_at)
    tl.store(found + row * 4 + 2, top.to(tl.int32, bitcast=True))
    tl.store(found + row * 4 + 3, next_best.to(tl.int32, bitcast=True))
