"""The dense backend: every request by itself, the mask taken from its tree, in the precision asked for.

The reference side of attention. It reads neither offsets nor a flat mask, so wrong metadata cannot reach it; it shares
the softmax with nothing: scores, mask and sum are written out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.kv_pool import KVPool


@dataclass(frozen=True, eq=False)
class DenseRequest:
    """Where one request's rows lie and what they see."""

    rows: slice
    prefix_slots: Tensor  # int64 [prefix_len]
    mask: Tensor  # bool [rows, prefix_len + rows]


class DenseAttention:
    """Attention callback of one forward pass over a slot pool."""

    def __init__(
        self,
        pool: KVPool,
        requests: list[DenseRequest],
        out_cache_loc: Tensor,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.pool, self.requests, self.out_cache_loc, self.dtype = (
            pool,
            requests,
            out_cache_loc,
            dtype,
        )

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [rows, heads, dim], k and v [rows, kv_heads, dim] -> [rows, heads, dim]; rows of no request are zero."""
        self.pool.store(layer, self.out_cache_loc, k, v)
        out = torch.zeros_like(q)
        for request in self.requests:
            keys = torch.cat([self.pool.k[layer][request.prefix_slots], k[request.rows]])
            values = torch.cat([self.pool.v[layer][request.prefix_slots], v[request.rows]])
            out[request.rows] = dense_attend(
                q[request.rows], keys, values, request.mask, self.dtype
            )
        return out


def dense_attend(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dtype: torch.dtype
) -> Tensor:
    """Softmax attention written out in ``dtype``.

    q [rows, heads, dim], keys and values [n, kv_heads, dim], mask bool [rows, n] -> [rows, heads, dim] in q's dtype.
    """
    group = q.shape[1] // keys.shape[1]
    wide_keys = keys.to(dtype).repeat_interleave(group, dim=1)
    wide_values = values.to(dtype).repeat_interleave(group, dim=1)
    scores = torch.einsum("rhd,nhd->hrn", q.to(dtype), wide_keys) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    return torch.einsum("hrn,nhd->rhd", weights, wide_values).to(q.dtype)
