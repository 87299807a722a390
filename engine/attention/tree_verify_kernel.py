"""The Triton kernels of tree-verify attention: one over parts of the prefix, one that merges the parts.

Few query rows see a long prefix, and the query heads of a group read the same keys. So a program takes the rows of all
heads of one group as one tile ("packed rows": row * group + head in the group), reads each key of its part of the
prefix once, and leaves an unnormalised sum, its maximum and its weight; the last part of a request also takes the tree
columns. With one part there is nothing to merge and the first kernel writes the output.

Parts are merged as in Flash-Decoding (Dao et al., 2023).
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.attention.chain_kernel import join_chain
from engine.attention.tree_verify_tiles import (
    FLOOR,
    LOG2E,
    add,
    finish,
    parts_of,
    sees_prefix,
    sees_tree,
)


@triton.jit(do_not_specialize=("splits", "least"))  # type: ignore[untyped-decorator]
def over_parts(  # type: ignore[no-untyped-def]
    q_extend,
    k_extend,
    v_extend,
    out,
    k_buffer,
    v_buffer,
    qo_indptr,
    kv_indptr,
    kv_indices,
    cells,
    mask_indptr,
    sinks,
    window_kv_offsets,
    sums,
    states,
    prefix_scale,
    tree_scale,
    v_scale,
    covered,
    room,
    splits,
    least,
    q_stride,
    q_head_stride,
    k_stride,
    k_head_stride,
    v_stride,
    v_head_stride,
    out_stride,
    out_head_stride,
    k_slot_stride,
    k_slot_head_stride,
    v_slot_stride,
    v_slot_head_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    KEYS: tl.constexpr,
    TREE_KEYS: tl.constexpr,
    QUERY_TILE: tl.constexpr,
    CAP: tl.constexpr,
    XAI: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_MASK: tl.constexpr,
    SKIP_PREFIX: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    PRECISION: tl.constexpr,
    CHAINED: tl.constexpr,
    FOLLOWS: tl.constexpr,
):
    """Grid (kv_heads * TILES, splits, requests). ``room``: packed rows of one part in ``sums`` and ``states``.

    ``CHAINED``: the merge is launched while this kernel runs (Hopper's programmatic dependent launch). ``FOLLOWS``: the
    depth of the chain that this kernel is in, 0: none.
    """
    kv_head, first_tile = tl.program_id(0) // TILES, tl.program_id(0) % TILES
    part, request = tl.program_id(1), tl.program_id(2)
    kv_start = tl.load(kv_indptr + request).to(tl.int64)
    prefix_len = (tl.load(kv_indptr + request + 1).to(tl.int64) - kv_start).to(tl.int32)
    part_keys, parts = parts_of(prefix_len, splits, least, KEYS)
    first_row = tl.load(qo_indptr + request).to(tl.int64)
    width = (tl.load(qo_indptr + request + 1).to(tl.int64) - first_row).to(tl.int32)
    if FOLLOWS > 0:
        join_chain(FOLLOWS)
    elif CHAINED:
        tl.extra.cuda.gdc_launch_dependents()  # the merge may be launched; it waits for the end of this kernel
    if part >= parts:
        return
    rows = tl.minimum(width, covered)
    mask_start, offset = first_row * 0, 0
    if HAS_MASK:
        mask_start = tl.load(mask_indptr + request).to(tl.int64)
        if WINDOW > 0:
            offset = tl.load(window_kv_offsets + request).to(tl.int32)
    begin = part * part_keys
    end = tl.minimum(begin + part_keys, prefix_len)
    whole = begin + (end - begin) // KEYS * KEYS  # end of the tiles that are full
    tree_width = tl.where(part == parts - 1, width, 0)  # the last part takes the tree as well
    part_start = ((request.to(tl.int64) * KV_HEADS + kv_head) * splits + part) * room

    LOOSE: tl.constexpr = WINDOW <= 0 and (SKIP_PREFIX or not HAS_MASK)  # a full tile needs no mask
    READ_CELLS: tl.constexpr = HAS_MASK and not SKIP_PREFIX
    dims, keys = tl.arange(0, DIM), tl.arange(0, KEYS)
    k_buffer += kv_head.to(tl.int64) * k_slot_head_stride
    v_buffer += kv_head.to(tl.int64) * v_slot_head_stride
    kv_indices += kv_start
    k_extend += first_row * k_stride + kv_head * k_head_stride
    v_extend += first_row * v_stride + kv_head * v_head_stride

    for tile in range(first_tile, tl.cdiv(rows * GROUP, ROWS), TILES):
        packed = tile * ROWS + tl.arange(0, ROWS)
        valid = packed < rows * GROUP
        row = tl.where(valid, packed // GROUP, -1)
        at = (first_row + packed // GROUP) * q_stride + (
            kv_head * GROUP + packed % GROUP
        ) * q_head_stride
        q = tl.load(q_extend + at[:, None] + dims[None, :], mask=valid[:, None], other=0.0)
        mask_row = mask_start + row.to(tl.int64) * (prefix_len + width + offset) + offset
        temperature = row
        if XAI > 0:
            length = (prefix_len + row).to(tl.float32)
            temperature = tl.log2(tl.maximum(length, XAI * 1.0)) / tl.log2(XAI * 1.0)
        best = tl.full((ROWS,), FLOOR, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, DIM), tl.float32)

        # Slots are loaded one tile ahead of the keys that lie there: else their latency would add up with the keys'.
        slot = tl.load(kv_indices + begin + keys, mask=begin + keys < whole, other=0).to(tl.int64)
        for start in range(begin, whole, KEYS):
            key = start + keys
            k = tl.load(k_buffer + slot[:, None] * k_slot_stride + dims[None, :])
            v = tl.load(v_buffer + slot[:, None] * v_slot_stride + dims[None, :])
            slot = tl.load(kv_indices + key + KEYS, mask=key + KEYS < whole, other=0).to(tl.int64)
            sees = key
            if not LOOSE:
                sees = sees_prefix(
                    row, key, key < end, mask_row, cells, prefix_len, WINDOW, READ_CELLS
                )
            best, total, acc = add(
                q.to(k.dtype),
                k,
                v,
                sees,
                prefix_scale,
                temperature,
                best,
                total,
                acc,
                CAP,
                XAI,
                not LOOSE,
                PRECISION,
            )
        for start in tl.range(whole, end, KEYS, num_stages=1):
            key = start + keys
            there = key < end
            slot = tl.load(kv_indices + key, mask=there, other=0).to(tl.int64)
            k = tl.load(
                k_buffer + slot[:, None] * k_slot_stride + dims[None, :],
                mask=there[:, None],
                other=0.0,
            )
            v = tl.load(
                v_buffer + slot[:, None] * v_slot_stride + dims[None, :],
                mask=there[:, None],
                other=0.0,
            )
            sees = sees_prefix(row, key, there, mask_row, cells, prefix_len, WINDOW, READ_CELLS)
            best, total, acc = add(
                q.to(k.dtype),
                k,
                v,
                sees,
                prefix_scale,
                temperature,
                best,
                total,
                acc,
                CAP,
                XAI,
                True,
                PRECISION,
            )
        acc *= v_scale

        for start in tl.range(0, tree_width, TREE_KEYS, num_stages=1):
            column = start + tl.arange(0, TREE_KEYS)
            there = column < width
            k = tl.load(
                k_extend + column[:, None] * k_stride + dims[None, :],
                mask=there[:, None],
                other=0.0,
            )
            v = tl.load(
                v_extend + column[:, None] * v_stride + dims[None, :],
                mask=there[:, None],
                other=0.0,
            )
            sees = sees_tree(
                row,
                column,
                width,
                mask_row + prefix_len,
                cells,
                WINDOW,
                HAS_MASK,
                CAUSAL,
                QUERY_TILE,
            )
            best, total, acc = add(
                q, k, v, sees, tree_scale, temperature, best, total, acc, CAP, XAI, True, PRECISION
            )

        finish(
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
            part_start,
            best,
            total,
            acc,
            out_stride,
            out_head_stride,
            GROUP,
            DIM,
            HAS_SINKS,
        )


@triton.jit(do_not_specialize=("splits", "least"))  # type: ignore[untyped-decorator]
def merge(  # type: ignore[no-untyped-def]
    out,
    sums,
    states,
    sinks,
    qo_indptr,
    kv_indptr,
    covered,
    room,
    splits,
    least,
    out_stride,
    out_head_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    KEYS: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS_POW2: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Grid (tiles of ``ROWS`` expected packed rows, kv_heads, requests): each takes every so manieth tile.

    ``CHAINED``: the depth of the chain that this kernel is in, 0: none.
    """
    kv_head, request = tl.program_id(1), tl.program_id(2)
    prefix_len = (tl.load(kv_indptr + request + 1) - tl.load(kv_indptr + request)).to(tl.int32)
    first_row = tl.load(qo_indptr + request).to(tl.int64)
    width = (tl.load(qo_indptr + request + 1).to(tl.int64) - first_row).to(tl.int32)
    _, parts = parts_of(prefix_len, splits, least, KEYS)
    join_chain(CHAINED)
    if parts == 1:
        return
    end = tl.minimum(width, covered) * GROUP
    number, dims = tl.arange(0, SPLITS_POW2), tl.arange(0, DIM)
    place = ((request.to(tl.int64) * KV_HEADS + kv_head) * splits + number) * room
    for first in range(tl.program_id(0) * ROWS, end, tl.num_programs(0) * ROWS):
        packed = first + tl.arange(0, ROWS)
        valid = packed < end
        at = place[None, :] + packed[:, None]
        there = (number < parts)[None, :] & valid[:, None]
        best = tl.load(states + 2 * at, mask=there, other=FLOOR)
        total = tl.load(states + 2 * at + 1, mask=there, other=0.0)
        at = at[:, :, None] * DIM + dims[None, None, :]
        acc = tl.load(sums + at, mask=there[:, :, None], other=0.0)
        highest = tl.max(best, 1)
        share = tl.exp2(best - highest[:, None])
        whole = tl.sum(share * total, 1)
        head = kv_head * GROUP + packed % GROUP
        if HAS_SINKS:
            sink = tl.load(sinks + head, mask=valid, other=0.0).to(tl.float32)
            whole += tl.exp2(sink * LOG2E - highest)
        result = tl.sum(share[:, :, None] * acc, 1) / whole[:, None]
        row = (first_row + packed // GROUP) * out_stride + head * out_head_stride
        result = result.to(out.dtype.element_ty)
        tl.store(out + row[:, None] + dims[None, :], result, mask=valid[:, None])
