"""A clean relayout: the same steps after a context of millions of tokens, whose mask int32 cannot count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.faults.recorded.edit import (
    extents,
    need,
    need_plain,
    with_commit,
    with_config,
    with_inputs,
    with_requests,
)
from engine.layout import indptr
from engine.step import Int64, Request, VerifyStep

INT32_CELLS = 1 << 31  # cells that int32 offsets cannot count


def at_long_context(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """The same steps after a context so long that the cells of one request's mask pass int32; nothing is wrong.

    What grows with the context (slots, the mask itself, its buffer) is left out of the record. Raises ``ValueError``
    for KV lengths that count draft rows or pages.
    """
    need_plain(steps, "kv_indptr_unit", "kv_indptr_counts_draft")
    return [_later(step, INT32_CELLS // int(extents(step).q_lens.max())) for step in steps]


def _later(step: VerifyStep, tokens: int) -> VerifyStep:
    live = np.arange(step.captured_bs) < step.raw_bs
    geometry = extents(step)
    prefix_lens: Int64 = geometry.prefix_lens + tokens * live
    longer = replace(geometry, prefix_lens=prefix_lens)
    row_is_live = np.repeat(live, geometry.q_lens)

    def grown(number: int, request: Request) -> Request:
        return replace(request, prefix_len=int(prefix_lens[number]), prefix_slots=None)

    settings = with_config(
        with_requests(step, grown),
        max_position=need(step.config.max_position, "config.max_position") + tokens,
        max_context=None,
        mask_capacity=None,
        pool_size=None,
    )
    moved = with_inputs(
        settings,
        positions=need(step.inputs.positions, "inputs.positions") + tokens * row_is_live,
        seq_lens=prefix_lens,
        kv_indptr=indptr(prefix_lens),
        kv_indices=None,
        mask_indptr=longer.mask_indptr,
        byte_indptr=longer.byte_indptr if longer.bits else None,
        custom_mask=None,
    )
    return with_commit(moved, seq_lens=need(step.commit.seq_lens, "commit.seq_lens") + tokens)
