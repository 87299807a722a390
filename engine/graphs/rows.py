"""What happens to rows between the matrix products of a layer; a Triton kernel on a GPU, plain torch elsewhere.

Every function allocates nothing but its result and reads nothing on the host, so a CUDA graph may capture it. Covered:
any number of rows; float32, bfloat16, float16. Not covered: head widths that are no power of two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention.chain import launch_options
from engine.models.rope import rotate, rotation

try:
    import triton
except ImportError:  # Triton has no build for this platform; the twins serve
    triton = None
else:
    from engine.graphs import rows_kernel as kernels

GATE_BLOCK = 512  # columns of one program


@dataclass(frozen=True, eq=False)
class Memory:
    """Where keys and values go: pools [layers, slots, kv_heads, head_dim], contiguous, and a slot a row."""

    k: Tensor
    v: Tensor
    slots: Tensor  # int64 [rows]


@dataclass(frozen=True, eq=False)
class Heads:
    """How fused heads are laid out and turned. ``num_heads`` 0: keys and values alone."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: Tensor  # [positions, head_dim], see rope_table
    eps: float  # of the head norms

    @property
    def width(self) -> int:
        """Numbers of a row of one layer."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


def normed(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The root mean square norm of hidden [rows, width], times ``weight`` [width]."""
    if hidden.is_cuda and triton is not None:
        return normed_triton(hidden, weight, eps)
    return normed_torch(hidden, weight, eps)


def normed_triton(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """:func:`normed` by the kernel; the input contiguous."""
    rows, width = hidden.shape
    out = torch.empty_like(hidden)
    kernels.norm_rows[(rows,)](
        hidden, weight, out, width, eps, BLOCK=triton.next_power_of_2(width), num_warps=4
    )
    return out


def normed_torch(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """:func:`normed` in plain torch."""
    wide = hidden.float() if hidden.dtype.itemsize < 4 else hidden
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.to(wide.dtype)).to(hidden.dtype)


def gated(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up`` of [rows, 2 * width], gates first: [rows, width]."""
    if gate_up.is_cuda and triton is not None:
        return gated_triton(gate_up)
    return gated_torch(gate_up)


def gated_triton(gate_up: Tensor) -> Tensor:
    """:func:`gated` by the kernel; the input contiguous."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    grid = (rows, triton.cdiv(width, GATE_BLOCK))
    kernels.gate_rows[grid](gate_up, out, width, BLOCK=GATE_BLOCK, num_warps=4)
    return out


def gated_torch(gate_up: Tensor) -> Tensor:
    """:func:`gated` in plain torch."""
    wide = gate_up.float() if gate_up.dtype.itemsize < 4 else gate_up
    gate, up = wide.chunk(2, dim=-1)
    return (F.silu(gate) * up).to(gate_up.dtype)


def place_heads(
    fused: Tensor,
    positions: Tensor,
    heads: Heads,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    memory: Memory | None,
    follows: int = 0,
) -> None:
    """Norm and rotate queries and keys in place, and write keys and values to the pools.

    ``fused`` [rows, layers * heads.width], contiguous: of each layer queries, keys, values; ``positions`` int64 [rows];
    ``q_norm``, ``k_norm`` [layers, head_dim] or None. ``memory`` has as many layers, or is None: nothing is written.
    ``follows``: the depth of the chain of kernels that the launch goes on with, 0: none.
    """
    run = place_heads_triton if fused.is_cuda and triton is not None else place_heads_torch
    run(fused, positions, heads, q_norm, k_norm, memory, follows)


def place_heads_triton(
    fused: Tensor,
    positions: Tensor,
    heads: Heads,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    memory: Memory | None,
    follows: int = 0,
) -> None:
    """:func:`place_heads` by the kernel."""
    rows, layers = fused.shape[0], fused.shape[1] // heads.width
    if rows:
        kernels.place_heads[(rows, heads.num_heads + 2 * heads.num_kv_heads, layers)](
            fused,
            positions,
            heads.rope,
            q_norm,
            k_norm,
            None if memory is None else memory.slots,
            None if memory is None else memory.k,
            None if memory is None else memory.v,
            fused.stride(0),
            heads.width,
            0 if memory is None else memory.k.stride(1),
            0 if memory is None else memory.k.stride(0),
            heads.eps,
            HEADS=heads.num_heads,
            KV_HEADS=heads.num_kv_heads,
            DIM=heads.head_dim,
            HAS_NORM=k_norm is not None,
            STORES=memory is not None,
            CHAINED=follows,
            num_warps=1,
            **launch_options(follows),
        )


def place_heads_torch(
    fused: Tensor,
    positions: Tensor,
    heads: Heads,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    memory: Memory | None,
    follows: int = 0,
) -> None:
    """:func:`place_heads` in plain torch."""
    turn = rotation(heads.rope, positions)
    rows, ends = fused.shape[0], (heads.num_heads, heads.num_heads + heads.num_kv_heads)
    table = fused.view(rows, -1, ends[1] + heads.num_kv_heads, heads.head_dim)
    for layer in range(table.shape[1]):
        query, key, value = table[:, layer].tensor_split(ends, dim=1)
        for part, weight in ((query, q_norm), (key, k_norm)):
            if part.shape[1]:
                flat = part.reshape(-1, heads.head_dim)
                if weight is not None:
                    flat = normed_torch(flat, weight[layer], heads.eps)
                part.copy_(rotate(flat.view(part.shape), *turn))
        if memory is not None:
            memory.k[layer].index_copy_(0, memory.slots, key)
            memory.v[layer].index_copy_(0, memory.slots, value)
