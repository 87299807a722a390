"""What the Triton kernels of tree-verify attention do with one tile: parts of a prefix, who sees what, the softmax.

The online softmax is that of Milakov and Gimelshein (2018).
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
FLOOR = tl.constexpr(
    -1.0e30
)  # below every score: a row that sees nothing keeps it, and its weight stays 0


@triton.jit  # type: ignore[untyped-decorator]
def parts_of(prefix_len, splits, least, KEYS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keys of one part, a multiple of ``KEYS``, and the number of parts: at most ``splits``, at least one."""
    wanted = tl.minimum(tl.cdiv(prefix_len, least), splits)
    keys = tl.cdiv(tl.cdiv(prefix_len, tl.maximum(wanted, 1)), KEYS) * KEYS
    return keys, tl.maximum(tl.cdiv(prefix_len, tl.maximum(keys, 1)), 1)


@triton.jit  # type: ignore[untyped-decorator]
def add(  # type: ignore[no-untyped-def]
    q,
    k,
    v,
    visible,
    scale,
    temperature,
    best,
    total,
    acc,
    CAP: tl.constexpr,
    XAI: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The running softmax after one more tile of keys."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if CAP > 0 or XAI > 0:
        scores *= scale
        if CAP > 0:
            scores = (1.0 - 2.0 / (1.0 + tl.exp2(scores * (2.0 * LOG2E)))) * (CAP * LOG2E)
        if XAI > 0:
            scores *= temperature[:, None]
        scale = 1.0
    if MASKED:
        scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - higher[:, None])  # one fused multiply-add a score
    shrink = tl.exp2(best - higher)
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(v.dtype), v, acc=acc * shrink[:, None], input_precision=PRECISION)
    return higher, total, acc


@triton.jit  # type: ignore[untyped-decorator]
def sees_prefix(  # type: ignore[no-untyped-def]
    row,
    key,
    there,
    mask_row,
    cells,
    prefix_len,
    WINDOW: tl.constexpr,
    READ_CELLS: tl.constexpr,
):
    """Which prefix keys each packed row sees, bool [rows, keys]. ``mask_row``: offset of its first prefix cell."""
    visible = there[None, :] & (row >= 0)[:, None]
    if READ_CELLS:
        cell = tl.load(cells + mask_row[:, None] + key[None, :], mask=visible, other=0)
        visible = visible & ((cell.to(tl.int32) & 1) != 0)
    if WINDOW > 0:
        visible = visible & (prefix_len + row[:, None] <= key[None, :] + WINDOW)
    return visible


@triton.jit  # type: ignore[untyped-decorator]
def sees_tree(  # type: ignore[no-untyped-def]
    row,
    column,
    width,
    mask_row,
    cells,
    WINDOW: tl.constexpr,
    HAS_MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    QUERY_TILE: tl.constexpr,
):
    """Which tree columns each packed row sees. Causal masks end with the row's own tile of ``QUERY_TILE`` rows."""
    visible = (column < width)[None, :] & (row >= 0)[:, None]
    if CAUSAL:
        end = (row // QUERY_TILE + 1) * QUERY_TILE
        visible = visible & (column[None, :] < end[:, None])
    if HAS_MASK:
        cell = tl.load(cells + mask_row[:, None] + column[None, :], mask=visible, other=0)
        visible = visible & ((cell.to(tl.int32) & 1) != 0)
    elif CAUSAL:
        visible = visible & (column[None, :] <= row[:, None])
    if WINDOW > 0:
        visible = visible & (row[:, None] <= column[None, :] + WINDOW)
    return visible


@triton.jit  # type: ignore[untyped-decorator]
def finish(  # type: ignore[no-untyped-def]
    out,
    sums,
    states,
    sinks,
    packed,
    valid,
    first_row,
    kv_head,
    part,
    parts,
    place,
    best,
    total,
    acc,
    out_stride,
    out_head_stride,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Write the output where there is one part, else what the merge needs. ``place``: that of its packed row 0."""
    dims = tl.arange(0, DIM)
    head = kv_head * GROUP + packed % GROUP
    if parts == 1:
        if HAS_SINKS:
            sink = tl.load(sinks + head, mask=valid, other=0.0).to(tl.float32)
            total += tl.exp2(sink * LOG2E - best)
        at = (first_row + packed // GROUP).to(tl.int64) * out_stride + head * out_head_stride
        result = acc / total[:, None]
        tl.store(
            out + at[:, None] + dims[None, :], result.to(out.dtype.element_ty), mask=valid[:, None]
        )
    else:
        at = place + packed
        tl.store(sums + at[:, None] * DIM + dims[None, :], acc, mask=valid[:, None])
        tl.store(states + 2 * at, best, mask=valid)
        tl.store(states + 2 * at + 1, total, mask=valid)
