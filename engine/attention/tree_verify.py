"""Tree-verify attention with the argument list of SGLang's ``extend_attention_fwd``, and what it does with them.

Metadata is taken at its word, here as there: wrong offsets read wrong cells, rows that the launch grid doesn't reach
are not written, a row that sees nothing is NaN. Read from SGLang 0.5.12, ``triton_ops/extend_attention.py``.

Covered: prefix through ``kv_indices``, custom masks with and without prefix columns, sliding windows by slot, sinks,
logit caps, temperature by length, scales of quantised caches, grouped heads. Not covered: heads whose width is no power
of two in 16 … 256, or another for keys than for values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from engine.attention.chain import can_chain, launch_options
from engine.attention.tree_verify_plan import Plan, make_plan, query_tile
from engine.attention.tree_verify_torch import tree_verify_torch

try:
    import triton
except ImportError:  # Triton has no build for this platform; the twin serves
    triton = None
else:
    from engine.attention import tree_verify_kernel as kernels
    from engine.attention.tree_verify_hopper_kernel import over_parts_hopper

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
    follows: int = 0,
) -> None:
    """Write the attention of the rows of a batch into ``o_extend``.

    ``q_extend``, ``o_extend`` [rows, heads, head_dim]; ``k_extend``, ``v_extend`` [rows, kv_heads, head_dim];
    ``k_buffer``, ``v_buffer`` [slots, kv_heads, head_dim]; ``qo_indptr``, ``kv_indptr``, ``mask_indptr`` integers
    [batch + 1]; ``kv_indices`` integers [kv_indptr[-1]]; ``custom_mask`` bool or uint8, of which the lowest bit counts;
    ``sinks`` [heads]; ``window_kv_offsets`` integers [batch]. ``max_len_extend``: rows of the longest request; tiles of
    ``tile`` rows (that of SGLang on this device) as far as it reaches are computed. Nothing is read by the host, and a
    CUDA graph may capture it. Raises ``ValueError`` for shapes that the kernel doesn't cover.

    ``follows``: the depth of the chain of kernels that the launch goes on with, 0: none. Offsets were then written
    before the chain began (:mod:`engine.attention.chain`).

    There are two kernels, and ``plan`` says which. Without one, :func:`make_plan` chooses, and takes the kernel for
    Hopper's matrix units only where :func:`hopper_covers` and what is said there hold. A plan for it where it doesn't
    cover the case raises ``ValueError``.
    """
    _, heads, dim = q_extend.shape
    kv_heads = k_extend.shape[1]
    _refuse(q_extend, k_extend, v_extend)
    group, batch = heads // kv_heads, len(qo_indptr) - 1
    if batch < 1 or max_len_extend < 1:
        return
    tile = query_tile(dim, q_extend.device) if tile is None else tile
    tensors = (q_extend, k_extend, v_extend, o_extend, k_buffer, v_buffer)
    plain = (
        (custom_mask is None or skip_prefix_custom_mask)
        and sinks is None
        and max(sliding_window_size, logit_cap, xai_temperature_len) <= 0
        and k_scale == v_scale == 1
    )
    hopper = plain and hopper_covers(tensors)
    if plan is None:
        processors = _processors(q_extend.device)
        plan = make_plan(
            batch, max_len_extend, kv_heads, group, dim, q_extend.dtype, processors, hopper
        )
    elif plan.groups and not hopper:
        raise ValueError(f"plan: the kernel of {plan.groups} warpgroups doesn't cover this case")
    covered = -(-max_len_extend // tile) * tile
    room = -(-covered * group // plan.rows) * plan.rows
    parts = (batch, kv_heads, plan.splits, room) if plan.splits > 1 else (0,)
    sums = q_extend.new_empty((*parts, dim), dtype=torch.float32)
    states = q_extend.new_empty((*parts, 2), dtype=torch.float32)
    chained = plan.splits > 1 and can_chain(q_extend.device)
    scale = sm_scale or dim**-0.5
    scale = scale / logit_cap if logit_cap > 0 else scale * LOG2E
    strides = [stride for tensor in tensors for stride in tensor.stride()[:2]]
    grid = (kv_heads * plan.tiles, plan.splits, batch)
    if plan.groups:
        over_parts_hopper[grid](
            *tensors,
            qo_indptr,
            kv_indptr,
            kv_indices,
            qo_indptr if custom_mask is None else custom_mask,
            mask_indptr,
            sums,
            states,
            scale,
            covered,
            room,
            plan.splits,
            plan.least,
            *strides,
            KV_HEADS=kv_heads,
            GROUP=group,
            DIM=dim,
            GROUPS=plan.groups,
            TILES=plan.tiles,
            STAGES=plan.stages,
            QUERY_TILE=tile,
            HAS_MASK=custom_mask is not None,
            CAUSAL=is_causal,
            CHAINED=chained,
            FOLLOWS=follows,
            num_warps=plan.warps,
            **launch_options(follows),
        )
    else:
        kernels.over_parts[grid](
            *tensors,
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
            *strides,
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
            FOLLOWS=follows,
            num_warps=plan.warps,
            num_stages=plan.stages,
            **launch_options(follows),
        )
    if plan.splits > 1:
        splits = triton.next_power_of_2(plan.splits)
        rows = max(1, min(4, 32 // splits))
        depth = max(follows, 1) if chained else 0
        kernels.merge[(-(-max_len_extend * group // rows), kv_heads, batch)](
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
            ROWS=rows,
            SPLITS_POW2=splits,
            HAS_SINKS=sinks is not None,
            CHAINED=depth,
            num_warps=4,
            **launch_options(depth),
        )


def hopper_covers(tensors: Sequence[Tensor]) -> bool:
    """Whether the kernel for Hopper's matrix units takes queries, keys, values, output and caches as they lie.

    Compute capability 9.0; one dtype of 16 bits; heads of 64 or 128, each on a multiple of 16 bytes. Nor does it take
    masks over the prefix, windows, sinks, caps, temperatures by length or scales other than 1.
    """
    first = tensors[0]
    return (
        first.is_cuda
        and _capability(first.device) == (9, 0)
        and first.dtype in (torch.bfloat16, torch.float16)
        and first.shape[-1] in (64, 128)
        and all(tensor.dtype == first.dtype for tensor in tensors)
        and all(
            tensor.data_ptr() % 16 == 0 and all(stride % 8 == 0 for stride in tensor.stride()[:2])
            for tensor in tensors
        )
    )


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


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
