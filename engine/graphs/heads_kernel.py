"""The Triton kernel of the product that makes heads: their rotation and the write to the KV pool are in the launch.

A number of a head turns together with the one half a head behind it. So a program's columns are two runs, half a head
apart, and whatever turns together lies in one program.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.attention.chain_kernel import ask_for_rows, join_chain
from engine.graphs.linear_kernel import load_squares, scale_of


@triton.jit  # type: ignore[untyped-decorator]
def few_rows_heads(  # type: ignore[no-untyped-def]
    x,
    weight,
    bias,
    before,
    positions,
    table,
    slots,
    k_pool,
    v_pool,
    out,
    rows,
    x_stride,
    slot_stride,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BEFORE: tl.constexpr,
    BLOCKS: tl.constexpr,
    EPS: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    STORES: tl.constexpr,
    ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    LINES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Grid (heads times parts of ``PAIRS`` pairs, blocks of ROWS rows); queries first, then keys, then values.

    ``x``, ``before``, ``LINES`` and ``CHAINED`` as in ``few_rows``; ``weight`` [heads * DIM, WIDTH]; ``table``
    [positions, DIM], cosines and sines. Products are rounded as a row of the model's type is before they are turned.
    Positions, slots and the table were written before the chain began.
    """
    HALF: tl.constexpr = DIM // 2
    PARTS: tl.constexpr = HALF // PAIRS
    WHOLE: tl.constexpr = (HEADS + 2 * KV_HEADS) * DIM
    head, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    row = row.to(tl.int64)
    number = tl.arange(0, 2 * PAIRS)
    column = head * DIM + part * PAIRS + number // PAIRS * HALF + number % PAIRS
    place = tl.arange(0, STEP)
    if CHAINED > 0:
        ask_for_rows(weight, column, WIDTH, LINES)
    pair = part * PAIRS + tl.arange(0, PAIRS)
    position = tl.load(positions + row, mask=there, other=0)
    angles = table + position[:, None] * DIM + pair[None, :]
    cosine = tl.load(angles, mask=there[:, None], other=0.0).to(tl.float32)
    sine = tl.load(angles + HALF, mask=there[:, None], other=0.0).to(tl.float32)
    if STORES:
        slot = tl.load(slots + row, mask=there, other=0)
    join_chain(CHAINED)
    if BEFORE > 0:  # on their way while products are summed; added up behind them
        earlier = load_squares(before, row, there, BEFORE, BLOCKS)
    x_at = x + row[:, None] * x_stride + place[None, :]
    w_at = weight + column.to(tl.int64)[None, :] * WIDTH + place[:, None]
    sums = tl.zeros((ROWS, 2 * PAIRS), tl.float32)
    for start in range(0, WIDTH, STEP):
        inside = start + place < WIDTH
        left = tl.load(x_at + start, mask=there[:, None] & inside[None, :], other=0.0)
        right = tl.load(w_at + start, mask=inside[:, None], other=0.0)
        sums = tl.dot(left, right, sums, input_precision=PRECISION)
    if BEFORE > 0:
        sums *= scale_of(earlier, WIDTH, EPS)[:, None]
    if HAS_BIAS:
        sums += tl.load(bias + column).to(tl.float32)[None, :]
    kind = out.dtype.element_ty
    halves = tl.permute(tl.reshape(sums.to(kind).to(tl.float32), (ROWS, 2, PAIRS)), (0, 2, 1))
    low, high = tl.split(halves)
    if head < HEADS + KV_HEADS:
        turned = low * cosine - high * sine
        high = high * cosine + low * sine
        low = turned
    at = out + row[:, None] * WHOLE + head * DIM + pair[None, :]
    tl.store(at, low.to(kind), mask=there[:, None])
    tl.store(at + HALF, high.to(kind), mask=there[:, None])
    if STORES:
        if head >= HEADS:
            kept = slot[:, None] * slot_stride + pair[None, :]
            if head < HEADS + KV_HEADS:
                to = k_pool + kept + (head - HEADS) * DIM
            else:
                to = v_pool + kept + (head - HEADS - KV_HEADS) * DIM
            tl.store(to, low.to(kind), mask=there[:, None])
            tl.store(to + HALF, high.to(kind), mask=there[:, None])
