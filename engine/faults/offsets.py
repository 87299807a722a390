"""Faults of the offsets and lengths that the attention is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.decoding.metadata import VerifyInputs
from engine.decoding.stages import Stages


def prefix_only_offsets(stages: Stages) -> Stages:
    """``mask_indptr`` counts the prefix columns alone, without the tree's."""

    def inputs(laid_out: VerifyInputs) -> VerifyInputs:
        laid_out = stages.inputs(laid_out)
        attention = laid_out.attention
        cells = attention.max_extend_len * laid_out.seq_lens
        return _with(laid_out, mask_indptr=_indptr(cells))

    return replace(stages, inputs=inputs)


def kv_counts_draft(stages: Stages) -> Stages:
    """``kv_indptr`` counts the draft rows too, and ``kv_indices`` lists their slots, as another backend wants it."""

    def inputs(laid_out: VerifyInputs) -> VerifyInputs:
        laid_out = stages.inputs(laid_out)
        attention, bs = laid_out.attention, len(laid_out.seq_lens)
        drafts = list(laid_out.out_cache_loc.view(bs, -1))
        drafts = [
            own if own.any() else own[:0] for own in drafts
        ]  # padded requests stay as they are
        starts = attention.kv_indptr.tolist()
        lines = [
            torch.cat([attention.kv_indices[starts[i] : starts[i + 1]], drafts[i]])
            for i in range(bs)
        ]
        kv_indptr = _indptr(torch.tensor([len(line) for line in lines])).to(torch.int32)
        return _with(laid_out, kv_indptr=kv_indptr, kv_indices=torch.cat(lines))

    return replace(stages, inputs=inputs)


def stale_kv_indices(stages: Stages) -> Stages:
    """The last committed token of each request is looked up in the slot of its first one."""

    def inputs(laid_out: VerifyInputs) -> VerifyInputs:
        laid_out = stages.inputs(laid_out)
        attention = laid_out.attention
        kv_indices, starts = attention.kv_indices.clone(), attention.kv_indptr.long()
        kv_indices[starts[1:] - 1] = kv_indices[starts[:-1]]
        return _with(laid_out, kv_indices=kv_indices)

    return replace(stages, inputs=inputs)


def seq_lens_behind(stages: Stages) -> Stages:
    """``seq_lens`` lag one token behind what was committed, and every offset follows them."""

    def inputs(laid_out: VerifyInputs) -> VerifyInputs:
        laid_out = stages.inputs(laid_out)
        attention, lens = laid_out.attention, (laid_out.seq_lens - 1).clamp(min=1)
        width = attention.max_extend_len
        starts = attention.kv_indptr.tolist()
        kept = [attention.kv_indices[s : s + int(n)] for s, n in zip(starts, lens, strict=False)]
        changed = _with(
            laid_out,
            kv_indptr=_indptr(lens).to(torch.int32),
            kv_indices=torch.cat(kept),
            mask_indptr=_indptr(width * (lens + width)),
        )
        return replace(changed, seq_lens=lens)

    return replace(stages, inputs=inputs)


def _with(laid_out: VerifyInputs, **attention: Tensor) -> VerifyInputs:
    changed: dict[str, Any] = dict(attention)
    return replace(laid_out, attention=replace(laid_out.attention, **changed))


def _indptr(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
