"""Tree-verify attention with the argument list of SGLang's ``extend_attention_fwd``, and what it does with them.

Metadata is taken at its word, here as there: wrong offsets read wrong cells, rows that the launch grid doesn't reach
are not written, a row that sees nothing is NaN. Read from SGLang 0.5.12, ``triton_ops/extend_attention.py``.

Covered: prefix through ``kv_indices``, custom masks with and without prefix columns, sliding windows by slot, sinks,
logit caps, temperature by length, scales of quantised caches, grouped heads. Not covered: heads whose width is no power
of two in 16 … 256, or another for keys than for values.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from engine.attention.tree_verify_plan import Plan, make_plan, query_tile
from engine.attention.tree_verify_torch import tree_verify_torch

try:
    import triton

    from engine.attention import tree_verify_kernel as kernels
except ImportError:  # Triton has no build for this platform; the twin serves
    triton = None

LOG2E = 1.4426950408889634


def tree_verify_attention(
    q_extend: Tensor,
    k_extend: Tensor,
    v_extend: Tensor,
    o_extend: Tensor,
    *metadata: Any,
    **options: Any,
) -> None:
    """The Triton kernel on a GPU, its plain torch twin elsewhere; arguments as :func:`tree_verify_triton`."""
    run = tree_verify_triton if q_extend.is_cuda and triton is not None else tree_verify_torch
    run(q_extend, k_extend, v_extend, o_extend, *metadata, **options)


def tree_verify_triton(
    q_extend: Tensor,
    k_extend: Tensor,
    v_extend: Tensor,
    o_extend: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    qo_indptr: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    custom_mask: Tensor | None,
    is_causal: bool,
    mask_indptr: Tensor | None,
    max_len_extend: int,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    sm_scale: float | None = None,
    logit_cap: float = 0.0,
    skip_prefix_custom_mask: bool = True,
    sliding_window_size: int = -1,
    sinks: Tensor | None = None,
    window_kv_offsets: Tensor | None = None,
    xai_temperature_len: int = -1,
    *,
    plan: Plan | None = None,
    tile: int | None = None,
) -> None:
    """Write the attention of the rows of a batch into ``o_extend``.

    ``q_extend``, ``o_extend`` [rows, heads, head_dim]; ``k_extend``, ``v_extend`` [rows, kv_heads, head_dim];
    ``k_buffer``, ``v_buffer`` [slots, kv_heads, head_dim]; ``qo_indptr``, ``kv_indptr``, ``mask_indptr`` integers
    [batch + 1]; ``kv_indices`` integers [kv_indptr[-1]]; ``custom_mask`` bool or uint8, of which the lowest bit counts;
    ``sinks`` [heads]; ``window_kv_offsets`` integers [batch]. ``max_len_extend``: rows of the longest request; tiles of
    ``tile`` rows (that of SGLang on this device) as far as it reaches are computed. Nothing is read by the host, and a
    CUDA graph may capture it. Raises ``ValueError`` for shapes that the kernel doesn't cover.
    """
    _, heads, dim = q_extend.shape
    kv_heads = k_extend.shape[1]
    _refuse(q_extend, k_extend, v_extend)
    group, batch = heads // kv_heads, len(qo_indptr) - 1
    if batch < 1 or max_len_extend < 1:
        return
    tile = query_tile(dim, q_extend.device) if tile is None else tile
    if plan is None:
        processors = _processors(q_extend.device)
        plan = make_plan(batch, max_len_extend, kv_heads, group, dim, q_extend.dtype, processors)
    covered = -(-max_len_extend // tile) * tile
    room = -(-covered * group // plan.rows) * plan.rows
    parts = (batch, kv_heads, plan.splits, room) if plan.splits > 1 else (0,)
    sums = q_extend.new_empty((*parts, dim), dtype=torch.float32)
    states = q_extend.new_empty((*parts, 2), dtype=torch.float32)
    chained = plan.splits > 1 and can_chain(q_extend.device)
    scale = sm_scale or dim**-0.5
    scale = scale / logit_cap if logit_cap > 0 else scale * LOG2E
    kernels.over_parts[(kv_heads * plan.tiles, plan.splits, batch)](
        q_extend,
        k_extend,
        v_extend,
        o_extend,
        k_buffer,
        v_buffer,
        qo_indptr,
        kv_indptr,
        kv_indices,
        custom_mask,
        mask_indptr,
        sinks,
        window_kv_offsets,
        sums,
        states,
        scale * k_scale,
        scale,
        v_scale,
        covered,
        room,
        plan.splits,
        plan.least,
        *q_extend.stride()[:2],
        *k_extend.stride()[:2],
        *v_extend.stride()[:2],
        *o_extend.stride()[:2],
        *k_buffer.stride()[:2],
        *v_buffer.stride()[:2],
        KV_HEADS=kv_heads,
        GROUP=group,
        DIM=dim,
        ROWS=plan.rows,
        TILES=plan.tiles,
        KEYS=plan.keys,
        TREE_KEYS=min(plan.keys, 32),
        QUERY_TILE=tile,
        CAP=logit_cap,
        XAI=xai_temperature_len,
        WINDOW=sliding_window_size,
        HAS_MASK=custom_mask is not None,
        SKIP_PREFIX=skip_prefix_custom_mask,
        CAUSAL=is_causal,
        HAS_SINKS=sinks is not None,
        PRECISION="ieee",
        CHAINED=chained,
        num_warps=plan.warps,
        num_stages=plan.stages,
    )
    if plan.splits > 1:
        kernels.merge[(max_len_extend * group, kv_heads, batch)](
            o_extend,
            sums,
            states,
            sinks,
            qo_indptr,
            kv_indptr,
            covered,
            room,
            plan.splits,
            plan.least,
            *o_extend.stride()[:2],
            KV_HEADS=kv_heads,
            GROUP=group,
            DIM=dim,
            KEYS=plan.keys,
            SPLITS_POW2=triton.next_power_of_2(plan.splits),
            HAS_SINKS=sinks is not None,
            CHAINED=chained,
            num_warps=2,
            **({"launch_pdl": True} if chained else {}),
        )


@cache
def can_chain(device: torch.device) -> bool:
    """Whether a kernel can be launched while the one before it runs: Hopper and later."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@cache
def _processors(device: torch.device) -> int:
    return (
        torch.cuda.get_device_properties(device).multi_processor_count
        if device.type == "cuda"
        else 4
    )


def _refuse(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise ``ValueError`` for heads that the kernel has no tiles for."""
    heads, dim = q.shape[1:]
    if k.shape[-1] != dim or v.shape[-1] != dim or dim & (dim - 1) or not 16 <= dim <= 256:
        found = f"{dim} (queries), {k.shape[-1]} (keys), {v.shape[-1]} (values)"
        raise ValueError(f"head_dim: expected one power of two in 16 … 256, found {found}")
    if heads % k.shape[1]:
        raise ValueError(f"heads: expected a multiple of {k.shape[1]} (kv_heads), found {heads}")
