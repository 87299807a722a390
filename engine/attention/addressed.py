"""The addressed backend: SGLang's Triton verify kernel in plain torch, metadata taken at its word.

One program a request: it computes the rows ``qo_indptr[i] … qo_indptr[i+1]-1`` (as far as ``max_extend_len`` makes the
launch grid reach), takes every slot of ``kv_indices[kv_indptr[i] : kv_indptr[i+1]]`` for visible without reading the
mask, and reads the tree columns at ``mask_indptr[i] + row * (kv_len + width) + kv_len + column``. Nothing is checked
against the truth: wrong offsets read wrong cells, and rows that no program covers keep what their memory held.

Covered: the full mask layout in bytes, grouped heads. Not covered: sliding windows, sinks, logit caps, packed bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoding.metadata import AttentionMetadata
from engine.layout import QUERY_TILE
from engine.models.device import to_host
from engine.models.kv_pool import KVPool


class Unwritten(StrEnum):
    """What a row holds that no program writes."""

    STALE = "stale"  # old memory: the query block of the call before, as a caching allocator hands it out again
    NAN = "nan"


class AddressFault(RuntimeError):
    """Metadata points outside a tensor: on a device, an illegal memory access."""


@dataclass(frozen=True, eq=False)
class Program:
    """What one program of the kernel works on."""

    rows: slice  # of the batch's rows
    slots: Tensor  # int64 [kv_len]
    mask: Tensor  # bool [rows, kv_len + rows]


class AddressedAttention:
    """Attention of one engine; :meth:`begin` gives the callback of one step."""

    def __init__(self, pool: KVPool, unwritten: Unwritten = Unwritten.STALE) -> None:
        self.pool, self.unwritten = pool, unwritten
        self._memory: Tensor | None = None  # what the allocator would hand out next

    def begin(self, metadata: AttentionMetadata, out_cache_loc: Tensor) -> _Step:
        """Attention callback for one forward pass. Raises :class:`AddressFault` for offsets outside a tensor."""
        return _Step(self, list(programs_of(metadata, len(out_cache_loc))), out_cache_loc)

    def output_like(self, q: Tensor) -> Tensor:
        """Memory for the output of one layer, not initialised: NaN or whatever was there."""
        if self.unwritten is Unwritten.NAN:
            out = torch.full_like(q, math.nan)
        elif self._memory is not None and self._memory.shape == q.shape:
            out = self._memory
        else:
            out = torch.zeros_like(q)
        self._memory = q.clone()
        return out


class _Step:
    """``attention(layer, q, k, v)`` of one forward pass."""

    def __init__(self, owner: AddressedAttention, programs: list[Program], slots: Tensor) -> None:
        self.owner, self.programs, self.out_cache_loc = owner, programs, slots

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [rows, heads, dim], k and v [rows, kv_heads, dim] -> [rows, heads, dim]."""
        pool = self.owner.pool
        pool.store(layer, self.out_cache_loc, k, v)
        out = self.owner.output_like(q)
        for program in self.programs:
            keys = torch.cat([pool.k[layer][program.slots], k[program.rows]])
            values = torch.cat([pool.v[layer][program.slots], v[program.rows]])
            rows = slice(program.rows.start, program.rows.start + len(program.mask))
            out[rows] = attend(q[rows], keys, values, program.mask)
        return out


def attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """q [rows, heads, dim] over keys and values [n, kv_heads, dim] with mask bool [rows, n] -> [rows, heads, dim].

    A CPU takes grouped heads as they are. On a GPU no fused kernel of torch takes both a mask and groups, so the heads
    of a group stand there as rows of one head.
    """
    if not q.is_cpu:
        return attend_by_group(q, keys, values, mask)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),
        keys.transpose(0, 1).unsqueeze(0),
        values.transpose(0, 1).unsqueeze(0),
        attn_mask=mask,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)


def attend_by_group(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """The same, as a product of one head a group."""
    rows, heads, dim = q.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    grouped = q.view(rows, kv_heads, group, dim).permute(1, 2, 0, 3)
    out = F.scaled_dot_product_attention(
        grouped.reshape(1, kv_heads, group * rows, dim),
        keys.transpose(0, 1).unsqueeze(0),
        values.transpose(0, 1).unsqueeze(0),
        attn_mask=mask.repeat(group, 1),
    )
    return out.view(kv_heads, group, rows, dim).permute(2, 0, 1, 3).reshape(q.shape)


def programs_of(metadata: AttentionMetadata, num_rows: int) -> Iterator[Program]:
    """One a request, for ``num_rows`` rows sent. Raises :class:`AddressFault` for offsets outside a tensor."""
    device = metadata.custom_mask.device
    qo, kv, starts = _listed(metadata.qo_indptr, metadata.kv_indptr, metadata.mask_indptr)
    grid = -(-metadata.max_extend_len // QUERY_TILE) * QUERY_TILE
    for i in range(len(qo) - 1):
        width, kv_len = qo[i + 1] - qo[i], kv[i + 1] - kv[i]
        _inside(f"qo_indptr[{i + 1}]", qo[i + 1], num_rows, "rows sent")
        _inside(f"kv_indptr[{i + 1}]", kv[i + 1], len(metadata.kv_indices), "entries of kv_indices")
        covered = min(width, grid)
        stride = kv_len + width
        first = starts[i] + kv_len
        if covered and width:
            last = first + max((covered - 1) * stride, 0) + width
            _inside(f"request {i}: last mask cell + 1", last, len(metadata.custom_mask), "cells")
        rows, columns = (torch.arange(count, device=device) for count in (covered, width))
        tree = metadata.custom_mask[first + rows[:, None] * stride + columns].bool()
        mask = torch.cat([tree.new_ones(covered, kv_len), tree], dim=1)
        yield Program(slice(qo[i], qo[i + 1]), metadata.kv_indices[kv[i] : kv[i + 1]], mask)


def _listed(*offsets: Tensor) -> list[list[int]]:
    """Each as a list, in one copy."""
    values = to_host(torch.cat(offsets)).tolist()
    ends = list(accumulate(map(len, offsets)))
    return [values[end - len(part) : end] for end, part in zip(ends, offsets, strict=True)]


def _inside(what: str, found: int, limit: int, unit: str) -> None:
    if found > limit:
        raise AddressFault(f"{what}: expected at most {limit} ({unit}), found {found}")
