"""What the warpgroups of Hopper's tree-verify attention do with the tiles that stand in shared memory.

One or two warpgroups take 64 packed rows each (row * group + head in the group) through a ring of tiles; another takes
the eight rows that follow, so that the rows of a tree, a multiple of 16 and the root, leave no second tile almost
empty. Those eight stand where keys stand otherwise: their scores are keys by rows, and the products are as narrow as
the matrix units allow.

The scores of a tile are multiplied before the softmax of the tile before it is waited for, as in FlashAttention-3
(Shah et al., 2024). Tiles whose keys aren't seen by every row come first: those of the tree, then the prefix's last.

``work``, one tuple: ``k_all``, ``v_all`` [stages, 64, head_dim] and the barriers of the stages' being ``full`` and
``empty``; ``done``, tiles that went through the ring before (a stage's phase flips each time it is filled); ``walk``
and ``seen`` of :func:`place` and :func:`_sees`; ``scale``; ``result`` of :func:`_finish`.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

KEYS = gl.constexpr(64)  # of one tile
ROWS = gl.constexpr(64)  # packed rows of one warpgroup
REST = gl.constexpr(8)  # packed rows of the warpgroup that takes what is left
FLOOR = gl.constexpr(-1.0e30)  # below every score, as in the plain kernel
meet = getattr(gl, "barrier", None) or gl.thread_barrier  # Triton 3.9's name and 3.6's


@gluon.jit
def place(tile, walk):  # type: ignore[no-untyped-def]
    """Of one tile: whether it is the tree's, its first column or key, and the end of what is there.

    ``walk``: how many tiles are the tree's, how many need a mask, and how many there are; of the part's keys the first,
    the end of the full tiles and the end; the tree's columns.
    """
    tree_tiles, masked_tiles, _, begin, whole, end, width = walk
    in_tree = tile < tree_tiles
    prefix = gl.where(tile < masked_tiles, whole, begin + (tile - masked_tiles) * KEYS)
    return in_tree, gl.where(in_tree, tile * KEYS, prefix), gl.where(in_tree, width, end)


@gluon.jit  # type: ignore[untyped-decorator]
def _sees(  # type: ignore[no-untyped-def]
    row,
    key,
    tile,
    walk,
    seen,
    HAS_MASK: gl.constexpr,
    CAUSAL: gl.constexpr,
    QUERY_TILE: gl.constexpr,
):
    """Which keys of a masked tile the rows see; ``row`` (-1: none) and ``key`` (in the tile) in either order.

    ``seen``: the mask; the request's first cell; cells of a row; cells before a row's first tree column.
    """
    cells, mask_start, row_cells, tree_cells = seen
    in_tree, start, limit = place(tile, walk)
    column = start + key
    visible = (column < limit) & (row >= 0)
    if CAUSAL:
        visible = visible & ((column < (row // QUERY_TILE + 1) * QUERY_TILE) | (not in_tree))
    if HAS_MASK:
        at = mask_start + row.to(gl.int64) * row_cells + tree_cells + column
        cell = gl.load(cells + at, mask=visible & in_tree, other=1)
        visible = visible & ((cell.to(gl.int32) & 1) != 0)
    elif CAUSAL:
        visible = visible & ((column <= row) | (not in_tree))
    return visible


@gluon.jit  # type: ignore[untyped-decorator]
def _weigh(scores, scale, best, AXIS: gl.constexpr):  # type: ignore[no-untyped-def]
    """Weights of a tile, the running maximum along ``AXIS`` and the factor for what was summed before."""
    higher = gl.maximum(best, gl.max(scores, AXIS) * scale)
    weights = gl.exp2(scores * scale - gl.expand_dims(higher, AXIS))
    return weights, higher, gl.exp2(best - higher)


@gluon.jit  # type: ignore[untyped-decorator]
def _finish(  # type: ignore[no-untyped-def]
    acc, total, best, packed, result, GROUP: gl.constexpr, AXIS: gl.constexpr, DIMS: gl.constexpr
):
    """Write the output where there is one part, else what the merge needs. ``AXIS``: that of the dims in ``acc``.

    ``result``: the key head; parts; the part's place in ``sums``; the end of the packed rows; the request's first row.
    """
    kv_head, parts, held, end, first_row, out, out_stride, out_head_stride, sums, states = result
    dims = gl.expand_dims(gl.arange(0, acc.shape[AXIS], DIMS), 1 - AXIS)
    valid = packed < end
    if parts == 1:
        row = (first_row + packed // GROUP) * out_stride
        row += (kv_head * GROUP + packed % GROUP) * out_head_stride
        mean = acc / gl.expand_dims(total, AXIS)
        at = gl.expand_dims(row, AXIS) + dims
        gl.store(out + at, mean.to(out.dtype.element_ty), mask=gl.expand_dims(valid, AXIS))
    else:
        row = held + packed
        gl.store(states + 2 * row, best, mask=valid)
        gl.store(states + 2 * row + 1, total, mask=valid)
        at = gl.expand_dims(row * acc.shape[AXIS], AXIS) + dims
        gl.store(sums + at, acc, mask=gl.expand_dims(valid, AXIS))


@gluon.jit  # type: ignore[untyped-decorator]
def attend(  # type: ignore[no-untyped-def]
    work,
    q_all,
    base,
    WHICH: gl.constexpr,
    GROUP: gl.constexpr,
    HAS_MASK: gl.constexpr,
    CAUSAL: gl.constexpr,
    QUERY_TILE: gl.constexpr,
):
    """64 rows: those of warpgroup ``WHICH`` in the tile from ``base``."""
    k_all, v_all, full, empty, done, walk, seen, scale, result = work
    masked_tiles, tiles = walk[1], walk[2]
    STAGES: gl.constexpr = k_all.shape[0]
    DIM: gl.constexpr = k_all.shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    OF_SCORES: gl.constexpr = gl.SliceLayout(1, SCORES)
    OF_SUMS: gl.constexpr = gl.SliceLayout(1, SUMS)
    q = q_all.index(WHICH)
    packed = base + WHICH * ROWS + gl.arange(0, ROWS, OF_SCORES)
    row = gl.where(packed < result[3], packed // GROUP, -1)
    none = gl.zeros((ROWS, KEYS), gl.float32, SCORES)
    best = gl.full((ROWS,), FLOOR, gl.float32, OF_SCORES)
    total = gl.zeros((ROWS,), gl.float32, OF_SCORES)
    acc = gl.zeros((ROWS, DIM), gl.float32, SUMS)

    for tile in range(0, masked_tiles):
        at = (done + tile) % STAGES
        mbarrier.wait(full.index(at), ((done + tile) // STAGES) & 1)
        fence_async_shared()
        scores = warpgroup_mma(q, k_all.index(at).permute((1, 0)), none, use_acc=False)
        key = gl.expand_dims(gl.arange(0, KEYS, gl.SliceLayout(0, SCORES)), 0)
        sees = _sees(gl.expand_dims(row, 1), key, tile, walk, seen, HAS_MASK, CAUSAL, QUERY_TILE)
        scores = gl.where(sees, scores, float("-inf"))
        weights, best, shrink = _weigh(scores, scale, best, 1)
        total = total * shrink + gl.sum(weights, 1)
        acc = acc * gl.expand_dims(gl.convert_layout(shrink, OF_SUMS), 1)
        weighed = gl.convert_layout(weights.to(k_all.dtype), WEIGHTS)
        acc = warpgroup_mma(weighed, v_all.index(at), acc)
        meet()
        mbarrier.arrive(empty.index(at), count=1)

    if masked_tiles < tiles:
        now = done + masked_tiles
        at = now % STAGES
        mbarrier.wait(full.index(at), (now // STAGES) & 1)
        fence_async_shared()
        scores = warpgroup_mma(q, k_all.index(at).permute((1, 0)), none, use_acc=False)
        weights, best, shrink = _weigh(scores, scale, best, 1)
        total = total * shrink + gl.sum(weights, 1)
        acc = acc * gl.expand_dims(gl.convert_layout(shrink, OF_SUMS), 1)
        weighed = gl.convert_layout(weights.to(k_all.dtype), WEIGHTS)
        now += 1
        mbarrier.wait(full.index(now % STAGES), (now // STAGES) & 1, pred=now < done + tiles)
        for _ in range(masked_tiles + 1, tiles):
            fence_async_shared()
            k = k_all.index(now % STAGES).permute((1, 0))
            scores = warpgroup_mma(q, k, none, use_acc=False, is_async=True)
            sums = warpgroup_mma(weighed, v_all.index(at), acc, is_async=True)
            scores = warpgroup_mma_wait(1, deps=[scores])
            weights, best, shrink = _weigh(scores, scale, best, 1)
            total = total * shrink + gl.sum(weights, 1)
            fresh = gl.convert_layout(weights.to(k_all.dtype), WEIGHTS)
            before = at
            at = now % STAGES
            now += 1
            # This wait stands before the other one because ptxas moves no weights across it.
            mbarrier.wait(full.index(now % STAGES), (now // STAGES) & 1, pred=now < done + tiles)
            acc, weighed, fresh = warpgroup_mma_wait(0, deps=[sums, weighed, fresh])
            meet()
            mbarrier.arrive(empty.index(before), count=1)
            acc = acc * gl.expand_dims(gl.convert_layout(shrink, OF_SUMS), 1)
            weighed = fresh
        acc = warpgroup_mma(weighed, v_all.index(at), acc)
        meet()
        mbarrier.arrive(empty.index(at), count=1)

    packed = base + WHICH * ROWS + gl.arange(0, ROWS, OF_SUMS)
    best, total = gl.convert_layout(best, OF_SUMS), gl.convert_layout(total, OF_SUMS)
    _finish(acc, total, best, packed, result, GROUP, 1, gl.SliceLayout(0, SUMS))


@gluon.jit  # type: ignore[untyped-decorator]
def attend_rest(  # type: ignore[no-untyped-def]
    work,
    q,
    weighed,
    base,
    GROUP: gl.constexpr,
    HAS_MASK: gl.constexpr,
    CAUSAL: gl.constexpr,
    QUERY_TILE: gl.constexpr,
):
    """Eight rows from ``base``, transposed. ``weighed``: shared memory for a tile's weights [8, 64]."""
    k_all, v_all, full, empty, done, walk, seen, scale, result = work
    masked_tiles, tiles = walk[1], walk[2]
    STAGES: gl.constexpr = k_all.shape[0]
    DIM: gl.constexpr = k_all.shape[2]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    OF_ROWS: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    OF_KEYS: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    packed = base + gl.arange(0, REST, OF_ROWS)
    row = gl.where(packed < result[3], packed // GROUP, -1)
    none = gl.zeros((KEYS, REST), gl.float32, LAYOUT)
    best = gl.full((REST,), FLOOR, gl.float32, OF_ROWS)
    total = gl.zeros((KEYS, REST), gl.float32, LAYOUT)
    acc = gl.zeros((DIM, REST), gl.float32, LAYOUT)
    for tile in range(0, tiles):
        at = (done + tile) % STAGES
        mbarrier.wait(full.index(at), ((done + tile) // STAGES) & 1)
        fence_async_shared()
        scores = warpgroup_mma(k_all.index(at), q.permute((1, 0)), none, use_acc=False)
        if tile < masked_tiles:
            key = gl.expand_dims(gl.arange(0, KEYS, OF_KEYS), 1)
            sees = _sees(
                gl.expand_dims(row, 0), key, tile, walk, seen, HAS_MASK, CAUSAL, QUERY_TILE
            )
            scores = gl.where(sees, scores, float("-inf"))
        weights, best, shrink = _weigh(scores, scale, best, 0)
        weighed.permute((1, 0)).store(weights.to(k_all.dtype))
        fence_async_shared()
        acc = acc * gl.expand_dims(shrink, 0)
        v = v_all.index(at).permute((1, 0))
        sums = warpgroup_mma(v, weighed.permute((1, 0)), acc, is_async=True)
        total = total * gl.expand_dims(shrink, 0) + weights
        acc = warpgroup_mma_wait(0, deps=[sums])
        meet()
        mbarrier.arrive(empty.index(at), count=1)
    _finish(acc, gl.sum(total, 0), best, packed, result, GROUP, 0, OF_KEYS)
