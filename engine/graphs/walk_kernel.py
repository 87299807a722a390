"""Triton kernels of the acceptance walk and of the KV compaction that follows it.

The walk needs no loop: a node is accepted if it and all nodes above it hold the token that their parent's row predicts.
Siblings hold different tokens, so the accepted nodes are one path, and each one's place on it is its depth.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def walk_trees(  # type: ignore[no-untyped-def]
    tokens,
    parents,
    depths,
    visible,
    counts,
    predict,
    out_cache_loc,
    seq_lens,
    raw_bs,
    path,
    accept_length,
    bonus,
    emitted,
    commit_rows,
    commit_slots,
    commit_positions,
    q_len,
    steps,
    NODES: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Grid (captured,). ``steps``: places of a path; ``NODES``, ``STEPS``: powers of two, at least q_len and steps."""
    request = tl.program_id(0)
    node = tl.arange(0, NODES)
    count = tl.where(request < tl.load(raw_bs), tl.load(counts + request).to(tl.int32), 0)
    first = request * q_len
    misses = tl.zeros((NODES,), tl.int32)
    for start in range(0, q_len, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = (column > 0) & (column < count)
        parent = tl.load(parents + first + column, mask=inside, other=0)
        token = tl.load(tokens + first + column, mask=inside, other=0)
        chosen = tl.load(predict + first + parent, mask=inside, other=0)
        wrong = inside & (token != chosen)
        above = tl.load(
            visible + (first + node)[:, None].to(tl.int64) * q_len + column[None, :],
            mask=(node < count)[:, None] & inside[None, :],
            other=0,
        )
        misses += tl.sum(above.to(tl.int32) * wrong.to(tl.int32)[None, :], 1)
    accepted = (node < count) & (misses == 0)
    length = tl.sum(accepted.to(tl.int32), 0)
    depth = tl.load(depths + first + node, mask=accepted, other=0)
    last = tl.max(tl.where(accepted, node, 0), 0)
    live = length > 0
    final = tl.load(predict + first + last)
    tl.store(accept_length + request, length.to(tl.int64))
    tl.store(bonus + request, tl.where(live, final, 0))

    place = tl.arange(0, STEPS)
    there = place < steps
    at = request * steps + place
    length_64 = tl.load(seq_lens + request)
    slot = tl.load(
        out_cache_loc + first + place, mask=place < length, other=0
    )  # the first rows' slots stay
    tl.store(path + at, tl.full((STEPS,), -1, tl.int64), mask=there)
    tl.store(emitted + at, tl.full((STEPS,), -1, tl.int64), mask=there)
    tl.store(commit_rows + at, tl.zeros((STEPS,), tl.int64), mask=there)
    tl.store(commit_slots + at, slot, mask=there)
    tl.store(commit_positions + at, tl.where(place < length, length_64 + place, 0), mask=there)
    tl.debug_barrier()
    base = request * steps
    tl.store(path + base + depth, node.to(tl.int64), mask=accepted)
    tl.store(commit_rows + base + depth, (first + node).to(tl.int64), mask=accepted)
    token = tl.load(tokens + first + node, mask=accepted, other=0)
    tl.store(emitted + base + depth - 1, token, mask=accepted & (node > 0))
    tl.store(emitted + base + length - 1, final, mask=live)


@triton.jit  # type: ignore[untyped-decorator]
def compact_pools(  # type: ignore[no-untyped-def]
    k_pool,
    v_pool,
    out_cache_loc,
    path,
    commit_slots,
    accept_length,
    q_len,
    steps,
    width,
    layer_stride,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (layers, captured, 2 * blocks): keys or values of some columns of a layer.

    All are read before any is written.
    """
    layer, request = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.program_id(2) // 2 * BLOCK + tl.arange(0, BLOCK)
    place = tl.arange(0, STEPS)
    there = place < tl.load(accept_length + request)
    node = tl.load(path + request * steps + place, mask=there, other=0)
    source = tl.load(out_cache_loc + request * q_len + node, mask=there, other=0)
    target = tl.load(commit_slots + request * steps + place, mask=there, other=0)
    inside = (there & (node != place))[:, None] & (column < width)[None, :]
    if tl.program_id(2) % 2 == 0:
        pool = k_pool + layer * layer_stride
    else:
        pool = v_pool + layer * layer_stride
    held = tl.load(pool + source[:, None] * width + column[None, :], mask=inside)
    tl.debug_barrier()
    tl.store(pool + target[:, None] * width + column[None, :], held, mask=inside)
