"""The product that makes a layer's heads, with their rotation and the write to the KV pool: one launch or two.

Which of the two is a rule of shape, type and device (:func:`joins`), never a matter of failure. Covered by one launch:
few rows, heads without norms of their own. Any others take the product and :func:`place_heads` behind it.
"""

from __future__ import annotations

from torch import Tensor

from engine.attention.chain import depth_on, launch_options
from engine.graphs.linear import (
    Unscaled,
    blocks_at_once,
    is_few,
    linear,
    lines_of,
    squares_of,
    tile_rows,
)
from engine.graphs.rows import Heads, Memory, place_heads

try:
    import triton
except ImportError:  # Triton has no build for this platform; torch serves
    triton = None
else:
    from engine.graphs import heads_kernel as kernels

JOINS = True  # False: always two launches
PAIRS = 8  # pairs of numbers that turn together, of one program: 16 columns, as in the products around it


def joins(x: Tensor | Unscaled, heads: Heads, k_norm: Tensor | None) -> bool:
    """Whether one launch does it: for few rows, heads of at least 16 numbers, and no norm over a whole head."""
    table = x.rows if isinstance(x, Unscaled) else x
    return JOINS and is_few(table) and k_norm is None and heads.head_dim >= 2 * PAIRS


def linear_heads(
    x: Tensor | Unscaled,
    weight: Tensor,
    bias: Tensor | None,
    positions: Tensor,
    heads: Heads,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    memory: Memory | None,
) -> Tensor:
    """``x @ weight.T + bias``, [rows, heads.width], queries and keys normed and turned, keys and values written.

    x [rows, width], weight [heads.width, width]; the rest as :func:`place_heads` takes it for one layer. ``positions``
    and slots were written before the chain of kernels began (:mod:`engine.attention.chain`).
    """
    if joins(x, heads, k_norm):
        return few_rows_heads(x, weight, bias, positions, heads, memory)
    fused = linear(x, weight, bias)
    follows = depth_on(fused.device) if is_few(fused) else 0
    place_heads(fused, positions, heads, q_norm, k_norm, memory, follows)
    return fused


def few_rows_heads(
    x: Tensor | Unscaled,
    weight: Tensor,
    bias: Tensor | None,
    positions: Tensor,
    heads: Heads,
    memory: Memory | None,
) -> Tensor:
    """:func:`linear_heads` by the kernel; one layer, no norms of heads. Any number of rows."""
    table, before, eps = squares_of(x)
    rows, width = table.shape
    out = table.new_empty(rows, heads.width)
    tile = tile_rows(rows)
    parts = heads.head_dim // (2 * PAIRS)
    count = heads.num_heads + 2 * heads.num_kv_heads
    depth = depth_on(table.device)
    kernels.few_rows_heads[(count * parts, triton.cdiv(rows, tile))](
        table,
        weight,
        bias,
        before,
        positions,
        heads.rope,
        None if memory is None else memory.slots,
        None if memory is None else memory.k,
        None if memory is None else memory.v,
        out,
        rows,
        table.stride(0),
        0 if memory is None else memory.k.stride(1),
        WIDTH=width,
        HAS_BIAS=bias is not None,
        BEFORE=0 if before is None else before.shape[1],
        BLOCKS=blocks_at_once(before),
        EPS=eps,
        HEADS=heads.num_heads,
        KV_HEADS=heads.num_kv_heads,
        DIM=heads.head_dim,
        STORES=memory is not None,
        ROWS=tile,
        PAIRS=PAIRS,
        STEP=128 if width >= 1024 else 64,
        PRECISION="ieee",
        LINES=lines_of(width),
        CHAINED=depth,
        num_warps=4,
        num_stages=6 if width >= 1024 else 4,
        **launch_options(depth),
    )
    return out
