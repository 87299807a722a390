"""One query row a request over contiguous caches: what generating many answers at once needs.

A Triton kernel for CUDA (one program per request and key/value head, online softmax over the request's own length) and
its plain torch twin. Not covered: gathered slots, masks, several rows a request.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # Triton has no build for this platform; the twin serves
    triton = None

TILE = 64  # keys of one step of the kernel
GROUP_TILE = 16  # the fewest rows of a matrix product


def decode_rows(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Attention of each row to the first ``lengths`` entries of its own cache, scaled by head_dim ** -0.5.

    ``query`` [rows, heads, head_dim]; ``keys`` and ``values`` [rows, capacity, kv_heads, head_dim] of the same dtype;
    ``lengths`` int64 [rows], at least 1. Returns what ``query`` is shaped like.
    """
    if query.is_cuda and triton is not None:
        return decode_rows_triton(query, keys, values, lengths)
    return decode_rows_torch(query, keys, values, lengths)


def decode_rows_torch(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """The same in plain torch, softmax in float32."""
    rows, heads, dim = query.shape
    kv_heads = keys.shape[2]
    grouped = query.view(rows, kv_heads, heads // kv_heads, dim)
    scores = torch.einsum("rhgd,rkhd->rhgk", grouped.float(), keys.float()) * dim**-0.5
    outside = torch.arange(keys.shape[1], device=query.device) >= lengths[:, None]
    weights = scores.masked_fill(outside[:, None, None], -torch.inf).softmax(dim=-1)
    out = torch.einsum("rhgk,rkhd->rhgd", weights, values.float())
    return out.to(query.dtype).reshape(query.shape)


def decode_rows_triton(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """The kernel. head_dim must be a power of two of at least 16, the group at most ``GROUP_TILE`` heads."""
    rows, heads, dim = query.shape
    kv_heads = keys.shape[2]
    query, out = query.contiguous(), torch.empty_like(query, memory_format=torch.contiguous_format)
    _kernel[(rows, kv_heads)](
        query,
        keys,
        values,
        lengths,
        out,
        keys.stride(0),
        keys.stride(1),
        keys.stride(2),
        dim**-0.5 * 1.4426950408889634,  # softmax by powers of two
        HEADS=heads,
        GROUP=heads // kv_heads,
        DIM=dim,
        ROWS=GROUP_TILE,
        TILE=TILE,
        PRECISION="ieee",  # float32 stays float32; 16-bit operands are not touched by it
        num_warps=2,
    )
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        query,
        keys,
        values,
        lengths,
        out,
        row_stride,
        key_stride,
        head_stride,
        scale,
        HEADS: tl.constexpr,
        GROUP: tl.constexpr,
        DIM: tl.constexpr,
        ROWS: tl.constexpr,
        TILE: tl.constexpr,
        PRECISION: tl.constexpr,
    ):
        row, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
        length = tl.load(lengths + row)
        member, column = tl.arange(0, ROWS), tl.arange(0, DIM)
        real = (member < GROUP)[:, None]
        place = (row * HEADS + kv_head * GROUP + member[:, None]) * DIM + column[None, :]
        q = tl.load(query + place, mask=real, other=0.0)
        base = row * row_stride + kv_head * head_stride
        best = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, DIM), tl.float32)
        for start in range(0, length, TILE):
            key = start + tl.arange(0, TILE)
            there = key < length
            offsets = base + key[:, None] * key_stride + column[None, :]
            k = tl.load(keys + offsets, mask=there[:, None], other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            scores = tl.where(there[None, :], scores, float("-inf"))
            higher = tl.maximum(best, tl.max(scores, 1))
            weights = tl.exp2(scores - higher[:, None])
            shrink = tl.exp2(best - higher)
            v = tl.load(values + offsets, mask=there[:, None], other=0.0)
            acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
            total = total * shrink + tl.sum(weights, 1)
            best = higher
        result = acc / total[:, None]
        tl.store(out + place, result.to(out.dtype.element_ty), mask=real)
