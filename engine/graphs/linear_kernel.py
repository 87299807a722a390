"""The Triton kernel of a matrix product over few rows, with what comes behind it in a decoder layer.

With few rows a product is as long as reading its weights takes, and a launch is as long again; so the gate or the
residual addition behind it is done in the same launch. So is the norm between two products, in two halves: the first
product hands on its rows times the gain and the sum of squares of each block of columns, the second scales its finished
sums, for a norm's scale is one number a row. Working on rows on their way to the matrix units took longer than the
launch that it saved.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.attention.chain_kernel import ask_for_rows, join_chain


@triton.jit  # type: ignore[untyped-decorator]
def load_squares(before, row, there, BEFORE: tl.constexpr, BLOCKS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums of squares [rows, BLOCKS] of rows; each number is of every so manieth of the ``BEFORE`` blocks."""
    block = tl.arange(0, BLOCKS)
    at = before + row.to(tl.int64)[:, None] * BEFORE + block[None, :]
    earlier = tl.load(at, mask=there[:, None] & (block < BEFORE)[None, :], other=0.0)
    for start in range(BLOCKS, BEFORE, BLOCKS):
        inner = there[:, None] & (start + block < BEFORE)[None, :]
        earlier += tl.load(at + start, mask=inner, other=0.0)
    return earlier


@triton.jit  # type: ignore[untyped-decorator]
def scale_of(earlier, WIDTH: tl.constexpr, EPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """What a norm multiplies each row by, [rows]; ``earlier`` as loaded."""
    return 1.0 / tl.sqrt(tl.sum(earlier, 1) / WIDTH + EPS)


@triton.jit  # type: ignore[untyped-decorator]
def few_rows(  # type: ignore[no-untyped-def]
    x,
    weight,
    bias,
    residual,
    before,
    gain,
    out,
    gained,
    squares,
    rows,
    columns,
    x_stride,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GATED: tl.constexpr,
    ADDS: tl.constexpr,
    BEFORE: tl.constexpr,
    BLOCKS: tl.constexpr,
    EPS: tl.constexpr,
    HANDS_ON: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    LINES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Grid (blocks of COLUMNS outputs, blocks of ROWS rows). ``x`` [rows, WIDTH]; ``weight`` [columns, WIDTH].

    ``GATED``: ``weight`` holds ``columns`` gates, then as many ups; the result is silu(gate) * up.
    ``BEFORE``: blocks of ``before`` [rows, BEFORE], float32 sums of squares, read ``BLOCKS`` at once; ``x`` lacks the
    scale of their norm. 0: it lacks none. ``HANDS_ON``: ``gained`` [rows, columns], the rounded result times ``gain``
    [columns], and ``squares`` [rows, blocks of COLUMNS], the sums of its squares, are for a product that takes them so.
    ``CHAINED``: the depth of the chain that the kernel is in, 0: none; ``LINES``: of 128 bytes of a row of ``weight``.
    """
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    there, wanted = row < rows, column < columns
    place = tl.arange(0, STEP)
    if CHAINED > 0:
        asked = tl.minimum(column, columns - 1)
        ask_for_rows(weight, asked, WIDTH, LINES)
        if GATED:
            ask_for_rows(weight, columns + asked, WIDTH, LINES)
        join_chain(CHAINED)
    if BEFORE > 0:  # on their way while products are summed; added up behind them
        earlier = load_squares(before, row, there, BEFORE, BLOCKS)
    x_at = x + row.to(tl.int64)[:, None] * x_stride + place[None, :]
    w_at = weight + column.to(tl.int64)[None, :] * WIDTH + place[:, None]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    ups = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, WIDTH, STEP):
        inside = start + place < WIDTH
        part = tl.load(x_at + start, mask=there[:, None] & inside[None, :], other=0.0)
        mask = inside[:, None] & wanted[None, :]
        sums = tl.dot(
            part, tl.load(w_at + start, mask=mask, other=0.0), sums, input_precision=PRECISION
        )
        if GATED:
            other = tl.load(w_at + columns * WIDTH + start, mask=mask, other=0.0)
            ups = tl.dot(part, other, ups, input_precision=PRECISION)
    if BEFORE > 0:
        scale = scale_of(earlier, WIDTH, EPS)
        sums *= scale[:, None]
        ups *= scale[:, None]
    if HAS_BIAS:
        sums += tl.load(bias + column, mask=wanted, other=0.0).to(tl.float32)[None, :]
    if GATED:
        sums = sums / (1.0 + tl.exp(-sums)) * ups
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    both = there[:, None] & wanted[None, :]
    if ADDS:
        sums += tl.load(residual + at, mask=both, other=0.0).to(tl.float32)
    result = sums.to(out.dtype.element_ty)
    tl.store(out + at, result, mask=both)
    if HANDS_ON:
        wide = result.to(tl.float32)
        gains = tl.load(gain + column, mask=wanted, other=0.0).to(tl.float32)
        tl.store(gained + at, (wide * gains[None, :]).to(gained.dtype.element_ty), mask=both)
        square_at = squares + row.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
        tl.store(square_at, tl.sum(wide * wide, 1), mask=there)
