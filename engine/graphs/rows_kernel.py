"""Triton kernels between the matrix products of a layer: norm, rotation with the write to the KV pool, gated product.

Each does in one launch what takes several operations of torch, with float32 inside: under a CUDA graph a small model
spends its time on launches, not on arithmetic.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.attention.chain_kernel import join_chain


@triton.jit  # type: ignore[untyped-decorator]
def norm_rows(hidden, weight, out, width, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Grid (rows,). Root mean square norm of each row, times ``weight``."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    there = at < width
    x = tl.load(hidden + row * width + at, mask=there, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + eps)
    gain = tl.load(weight + at, mask=there, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, (x * scale * gain).to(out.dtype.element_ty), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def gate_rows(gate_up, out, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Grid (rows, blocks of ``BLOCK`` columns). ``gate_up`` [rows, 2 * width]: silu of a half times the other."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    gate = tl.load(gate_up + 2 * row * width + at, mask=there, other=0.0).to(tl.float32)
    up = tl.load(gate_up + 2 * row * width + width + at, mask=there, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * width + at, result.to(out.dtype.element_ty), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def place_heads(  # type: ignore[no-untyped-def]
    fused,
    positions,
    table,
    q_norm,
    k_norm,
    slots,
    k_pool,
    v_pool,
    row_stride,
    layer_stride,
    slot_stride,
    pool_layer_stride,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    HAS_NORM: tl.constexpr,
    STORES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Grid (rows, HEADS + 2 * KV_HEADS, layers): one head of a row; queries first, then keys, then values.

    Queries and keys are normed where the family does so and rotated in place; keys and values go to the row's slot.
    ``CHAINED``: the depth of the chain that the kernel is in, 0: none.
    """
    join_chain(CHAINED)
    row, head, layer = (
        tl.program_id(0).to(tl.int64),
        tl.program_id(1),
        tl.program_id(2).to(tl.int64),
    )
    HALF: tl.constexpr = DIM // 2
    half = tl.arange(0, HALF)
    start = fused + row * row_stride + layer * layer_stride + head * DIM
    low = tl.load(start + half).to(tl.float32)
    high = tl.load(start + HALF + half).to(tl.float32)
    kind = fused.dtype.element_ty
    if head < HEADS + KV_HEADS:
        if HAS_NORM:
            gain = k_norm + layer * DIM
            if HEADS > 0:
                if head < HEADS:
                    gain = q_norm + layer * DIM
            scale = 1.0 / tl.sqrt((tl.sum(low * low, 0) + tl.sum(high * high, 0)) / DIM + eps)
            # Rounded as a row of the model's type is.
            low = (low * scale * tl.load(gain + half).to(tl.float32)).to(kind).to(tl.float32)
            high = (
                (high * scale * tl.load(gain + HALF + half).to(tl.float32)).to(kind).to(tl.float32)
            )
        angles = table + tl.load(positions + row) * DIM
        cosine = tl.load(angles + half).to(tl.float32)
        sine = tl.load(angles + HALF + half).to(tl.float32)
        turned = low * cosine - high * sine
        high = high * cosine + low * sine
        low = turned
        tl.store(start + half, low.to(kind))
        tl.store(start + HALF + half, high.to(kind))
    if STORES:
        if head >= HEADS:
            at = tl.load(slots + row) * slot_stride + layer * pool_layer_stride
            if head < HEADS + KV_HEADS:
                to = k_pool + at + (head - HEADS) * DIM + half
            else:
                to = v_pool + at + (head - HEADS - KV_HEADS) * DIM + half
            tl.store(to, low.to(kind))
            tl.store(to + HALF, high.to(kind))
