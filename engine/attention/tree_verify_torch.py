"""Tree-verify attention in plain torch: the twin of the Triton kernel, written from the contract and not from it.

One request and one row at a time: the keys that the row sees are listed, then one softmax over all of them, in the
precision asked for. No tiles, no parts, no running maximum.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.attention.tree_verify_plan import query_tile


def tree_verify_torch(
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
    tile: int | None = None,
    follows: int = 0,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Arguments as :func:`engine.attention.tree_verify.tree_verify_triton`; ``dtype``: of the arithmetic.

    ``follows`` is about launches alone, of which there is none here.
    """
    heads, dim = q_extend.shape[1:]
    group = heads // k_extend.shape[1]
    tile = query_tile(dim, q_extend.device) if tile is None else tile
    covered = -(-max_len_extend // tile) * tile
    scale = sm_scale or dim**-0.5
    qo, kv = qo_indptr.tolist(), kv_indptr.tolist()
    starts = [0] * len(qo) if mask_indptr is None else mask_indptr.tolist()
    windowed = custom_mask is not None and sliding_window_size > 0
    offsets = (
        window_kv_offsets.tolist() if windowed and window_kv_offsets is not None else [0] * len(qo)
    )
    for i in range(len(qo) - 1):
        width, prefix_len = qo[i + 1] - qo[i], kv[i + 1] - kv[i]
        slots = kv_indices[kv[i] : kv[i + 1]]
        prefix_k, prefix_v = (
            k_buffer[slots].to(dtype) * k_scale,
            v_buffer[slots].to(dtype) * v_scale,
        )
        keys = torch.cat([prefix_k, k_extend[qo[i] : qo[i + 1]].to(dtype)]).repeat_interleave(
            group, 1
        )
        values = torch.cat([prefix_v, v_extend[qo[i] : qo[i + 1]].to(dtype)]).repeat_interleave(
            group, 1
        )
        for row in range(min(width, covered)):
            visible = torch.ones(prefix_len + width, dtype=torch.bool, device=q_extend.device)
            tree = visible[prefix_len:]
            if is_causal:
                tree[(row // tile + 1) * tile :] = False
            if custom_mask is not None:
                first = starts[i] + row * (prefix_len + width + offsets[i]) + offsets[i]
                cells = (custom_mask[first : first + prefix_len + width] & 1).bool()
                tree &= cells[prefix_len:]
                if not skip_prefix_custom_mask:
                    visible[:prefix_len] &= cells[:prefix_len]
            elif is_causal:
                tree[row + 1 :] = False
            if sliding_window_size > 0:
                visible[: max(prefix_len + row - sliding_window_size, 0)] = False
            query = q_extend[qo[i] + row].to(dtype)
            scores = torch.einsum("hd,nhd->hn", query, keys) * scale
            if logit_cap > 0:
                scores = logit_cap * torch.tanh(scores / logit_cap)
            if 0 < xai_temperature_len < prefix_len + row:
                scores = scores * (math.log2(prefix_len + row) / math.log2(xai_temperature_len))
            scores = scores.masked_fill(~visible, -math.inf)
            if sinks is not None:
                scores = torch.cat([scores, sinks.to(dtype)[:, None]], dim=1)
            weights = scores.softmax(dim=1)[:, : prefix_len + width]
            o_extend[qo[i] + row] = torch.einsum("hn,nhd->hd", weights, values).to(o_extend.dtype)
