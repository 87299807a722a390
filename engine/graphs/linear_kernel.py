"""The Triton kernel of a matrix product over few rows, with what comes before and after it in a decoder layer.

With few rows a product is as long as reading its weights takes, and a launch is as long again; so the norm before it,
and the gate or the residual addition behind it, are done in the same launch. A norm's scale is one number a row: it is
applied to the finished sums.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def few_rows(  # type: ignore[no-untyped-def]
    x,
    weight,
    gain,
    bias,
    residual,
    out,
    rows,
    columns,
    x_stride,
    eps,
    WIDTH: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GATED: tl.constexpr,
    ADDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid (blocks of COLUMNS outputs, blocks of ROWS rows). ``x`` [rows, WIDTH]; ``weight`` [columns, WIDTH].

    ``GATED``: ``weight`` holds ``columns`` gates, then as many ups; the result is silu(gate) * up.
    """
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    there, wanted = row < rows, column < columns
    place = tl.arange(0, STEP)
    x_at = x + row.to(tl.int64)[:, None] * x_stride + place[None, :]
    w_at = weight + column.to(tl.int64)[None, :] * WIDTH + place[:, None]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    ups = tl.zeros((ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    for start in range(0, WIDTH, STEP):
        inside = start + place < WIDTH
        part = tl.load(x_at + start, mask=there[:, None] & inside[None, :], other=0.0)
        if HAS_NORM:
            wide = part.to(tl.float32)
            squares += tl.sum(wide * wide, 1)
            gains = tl.load(gain + start + place, mask=inside, other=0.0).to(tl.float32)
            part = (wide * gains[None, :]).to(part.dtype)
        mask = inside[:, None] & wanted[None, :]
        sums = tl.dot(
            part, tl.load(w_at + start, mask=mask, other=0.0), sums, input_precision=PRECISION
        )
        if GATED:
            other = tl.load(w_at + columns * WIDTH + start, mask=mask, other=0.0)
            ups = tl.dot(part, other, ups, input_precision=PRECISION)
    if HAS_NORM:
        scale = 1.0 / tl.sqrt(squares / WIDTH + eps)
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
    tl.store(out + at, sums.to(out.dtype.element_ty), mask=both)
