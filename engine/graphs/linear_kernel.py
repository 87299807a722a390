"""The Triton kernel of a matrix product over few rows, with what comes behind it in a decoder layer.

With few rows a product is as long as reading its weights takes, and a launch is as long again; so the gate or the
residual addition behind it is done in the same launch. The norm before it is not: scaling rows on their way to the
matrix units took longer than the launch that it saves.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def few_rows(  # type: ignore[no-untyped-def]
    x,
    weight,
    bias,
    residual,
    out,
    rows,
    columns,
    x_stride,
    WIDTH: tl.constexpr,
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
    if HAS_BIAS:
        sums += tl.load(bias + column, mask=wanted, other=0.0).to(tl.float32)[None, :]
    if GATED:
        sums = sums / (1.0 + tl.exp(-sums)) * ups
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    both = there[:, None] & wanted[None, :]
    if ADDS:
        sums += tl.load(residual + at, mask=both, other=0.0).to(tl.float32)
    tl.store(out + at, sums.to(out.dtype.element_ty), mask=both)
