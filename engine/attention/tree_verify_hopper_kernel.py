"""Tree-verify attention on Hopper's matrix units, in Gluon: a program's warpgroups share the work of one tile.

One warpgroup copies keys and values, row by row through their slots, into a ring of tiles in shared memory; the others
are in :mod:`engine.attention.hopper_warpgroups`. The ring, and warpgroups with a role and registers of their own, are
those of FlashAttention-3 (Shah et al., 2024).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import async_copy, mbarrier

from engine.attention.hopper_warpgroups import KEYS, REST, ROWS, attend, attend_rest, place

# Triton 3.9's name and 3.6's.
copy_in = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared


@gluon.jit
def parts_of(prefix_len, splits, least):  # type: ignore[no-untyped-def]
    """Keys of one part and the number of parts, as ``parts_of`` of the plain kernel."""
    wanted = gl.minimum(gl.cdiv(prefix_len, least), splits)
    keys = gl.cdiv(gl.cdiv(prefix_len, gl.maximum(wanted, 1)), KEYS) * KEYS
    return keys, gl.maximum(gl.cdiv(prefix_len, gl.maximum(keys, 1)), 1)


@gluon.jit  # type: ignore[untyped-decorator]
def _copy_queries(  # type: ignore[no-untyped-def]
    to, base, end, kv_head, queries, GROUP: gl.constexpr, LAYOUT: gl.constexpr
):
    """Packed rows from ``base``, zeros from ``end``."""
    q_extend, stride, head_stride = queries
    packed = base + gl.arange(0, to.shape[0], gl.SliceLayout(1, LAYOUT))
    at = (packed // GROUP) * stride + (kv_head * GROUP + packed % GROUP) * head_stride
    at = gl.expand_dims(gl.multiple_of(at, 8), 1)
    dims = gl.expand_dims(gl.arange(0, to.shape[1], gl.SliceLayout(0, LAYOUT)), 0)
    copy_in(to, q_extend + (at + dims), mask=gl.expand_dims(packed < end, 1))


@gluon.jit  # type: ignore[untyped-decorator]
def _copy_tile(to, row, slot, in_tree, there, source, LAYOUT: gl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of one tile, zeros where nothing is ``there``: zero weights times what memory held could be NaN."""
    extend, stride, buffer, slot_stride = source
    at = gl.multiple_of(gl.where(in_tree, row * stride, slot * slot_stride), 8)
    dims = gl.expand_dims(gl.arange(0, to.shape[1], gl.SliceLayout(0, LAYOUT)), 0)
    start = gl.where(in_tree, extend, buffer)
    copy_in(to, start + (gl.expand_dims(at, 1) + dims), mask=gl.expand_dims(there, 1))


@gluon.jit  # type: ignore[untyped-decorator]
def _carry(  # type: ignore[no-untyped-def]
    work, source, q_all, q_rest, base, GROUP: gl.constexpr
):
    """Copy the queries and, stage by stage as they fall empty, the tiles. Slots are read one tile ahead."""
    k_all, v_all, full, empty, done, walk, _, _, result = work
    kv_head, limit_rows = result[0], result[3]
    queries, keys, values, kv_indices = source
    GROUPS: gl.constexpr = q_all.shape[0]
    STAGES: gl.constexpr = k_all.shape[0]
    DIM: gl.constexpr = k_all.shape[2]
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DIM, DIM // 8], [4, 1], [1, 0])
    key = gl.arange(0, KEYS, gl.SliceLayout(1, LAYOUT))
    in_tree, start, limit = place(0, walk)
    there = start + key < limit
    slot = gl.load(kv_indices + start + key, mask=there & (not in_tree), other=0).to(gl.int64)
    for which in gl.static_range(GROUPS):
        first = base + which * ROWS
        _copy_queries(q_all.index(which), first, limit_rows, kv_head, queries, GROUP, LAYOUT)
    first = base + GROUPS * ROWS
    _copy_queries(q_rest, first, limit_rows, kv_head, queries, GROUP, LAYOUT)
    for tile in range(0, walk[2]):
        in_tree, start, limit = place(tile, walk)
        row = start + key
        next_in_tree, next_start, next_limit = place(tile + 1, walk)
        there = (next_start + key < next_limit) & (not next_in_tree)
        # Asked for before the copies: after them it would queue behind them.
        ahead = gl.load(kv_indices + next_start + key, mask=there, other=0).to(gl.int64)
        at = (done + tile) % STAGES
        mbarrier.wait(empty.index(at), (((done + tile) // STAGES) & 1) ^ 1)
        _copy_tile(k_all.index(at), row, slot, in_tree, row < limit, keys, LAYOUT)
        _copy_tile(v_all.index(at), row, slot, in_tree, row < limit, values, LAYOUT)
        async_copy.mbarrier_arrive(full.index(at), increment_count=False)
        slot = ahead


@gluon.jit
def _launch_dependents():  # type: ignore[no-untyped-def]
    """The next kernel of a chain may be launched; it waits for the end of this one."""
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _wait():  # type: ignore[no-untyped-def]
    """For the end of the kernel before this one in a chain."""
    gl.inline_asm_elementwise(
        "griddepcontrol.wait; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit(do_not_specialize=("splits", "least"))  # type: ignore[untyped-decorator]
def over_parts_hopper(  # type: ignore[no-untyped-def]
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
    sums,
    states,
    scale,
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
    KV_HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    DIM: gl.constexpr,
    GROUPS: gl.constexpr,
    TILES: gl.constexpr,
    STAGES: gl.constexpr,
    QUERY_TILE: gl.constexpr,
    HAS_MASK: gl.constexpr,
    CAUSAL: gl.constexpr,
    CHAINED: gl.constexpr,
    FOLLOWS: gl.constexpr,
):
    """Grid and arguments as ``over_parts`` of the plain kernel; tiles of ``GROUPS`` * 64 + 8 packed rows."""
    TILE: gl.constexpr = GROUPS * ROWS + REST
    SHARED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    dtype: gl.constexpr = k_buffer.dtype.element_ty
    kv_head, first_tile = gl.program_id(0) // TILES, gl.program_id(0) % TILES
    part, request = gl.program_id(1), gl.program_id(2)
    kv_start = gl.load(kv_indptr + request).to(gl.int64)
    prefix_len = (gl.load(kv_indptr + request + 1).to(gl.int64) - kv_start).to(gl.int32)
    first_row = gl.load(qo_indptr + request).to(gl.int64)
    width = (gl.load(qo_indptr + request + 1).to(gl.int64) - first_row).to(gl.int32)
    mask_start = first_row * 0
    if HAS_MASK:
        mask_start = gl.load(mask_indptr + request).to(gl.int64)
    part_keys, parts = parts_of(prefix_len, splits, least)
    if FOLLOWS == 2 or (FOLLOWS == 0 and CHAINED):
        _launch_dependents()
    if FOLLOWS > 0:
        _wait()
    if FOLLOWS == 1:
        _launch_dependents()
    if part < parts:
        end_row = gl.minimum(width, covered) * GROUP
        begin = part * part_keys
        end = gl.minimum(begin + part_keys, prefix_len)
        whole = begin + (end - begin) // KEYS * KEYS  # end of the tiles that are full
        tree_tiles = gl.where(part == parts - 1, gl.cdiv(width, KEYS), 0)
        masked_tiles = tree_tiles + (whole < end).to(gl.int32)
        tiles = masked_tiles + gl.maximum((whole - begin) // KEYS, 0)
        walk = (tree_tiles, masked_tiles, tiles, begin, whole, end, width)
        seen = (cells, mask_start, prefix_len + width, prefix_len)
        held = ((request.to(gl.int64) * KV_HEADS + kv_head) * splits + part) * room
        result = (
            kv_head,
            parts,
            held,
            end_row,
            first_row,
            out,
            out_stride,
            out_head_stride,
            sums,
            states,
        )
        queries = (q_extend + first_row * q_stride, q_stride, q_head_stride)
        k_extend += first_row * k_stride + kv_head * k_head_stride
        v_extend += first_row * v_stride + kv_head * v_head_stride
        k_buffer += kv_head.to(gl.int64) * k_slot_head_stride
        v_buffer += kv_head.to(gl.int64) * v_slot_head_stride
        keys = (k_extend, k_stride, k_buffer, k_slot_stride)
        values = (v_extend, v_stride, v_buffer, v_slot_stride)
        kv_indices += kv_start

        k_all = gl.allocate_shared_memory(dtype, [STAGES, KEYS, DIM], SHARED)
        v_all = gl.allocate_shared_memory(dtype, [STAGES, KEYS, DIM], SHARED)
        q_all = gl.allocate_shared_memory(dtype, [GROUPS, ROWS, DIM], SHARED)
        q_rest = gl.allocate_shared_memory(dtype, [REST, DIM], SHARED)
        weighed = gl.allocate_shared_memory(dtype, [REST, KEYS], SHARED)
        full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
        empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
        for stage in gl.static_range(STAGES):
            mbarrier.init(full.index(stage), count=128)  # threads that copy
            mbarrier.init(empty.index(stage), count=GROUPS + 1)
        done = 0
        for tile in range(first_tile, gl.cdiv(end_row, TILE), TILES):
            base = tile * TILE
            rest = base + GROUPS * ROWS
            work = (k_all, v_all, full, empty, done, walk, seen, scale, result)
            source = (queries, keys, values, kv_indices)
            if GROUPS == 1:
                gl.warp_specialize(
                    [
                        (attend, (work, q_all, base, FIRST, GROUP, HAS_MASK, CAUSAL, QUERY_TILE)),
                        (
                            attend_rest,
                            (work, q_rest, weighed, rest, GROUP, HAS_MASK, CAUSAL, QUERY_TILE),
                        ),
                        (_carry, (work, source, q_all, q_rest, base, GROUP)),
                    ],
                    [4, 4],
                    [96, 128],
                )
            else:
                gl.warp_specialize(
                    [
                        (attend, (work, q_all, base, FIRST, GROUP, HAS_MASK, CAUSAL, QUERY_TILE)),
                        (attend, (work, q_all, base, SECOND, GROUP, HAS_MASK, CAUSAL, QUERY_TILE)),
                        (
                            attend_rest,
                            (work, q_rest, weighed, rest, GROUP, HAS_MASK, CAUSAL, QUERY_TILE),
                        ),
                        (_carry, (work, source, q_all, q_rest, base, GROUP)),
                    ],
                    [4, 4, 4],
                    [160, 80, 112],
                )
            done += tiles
