"""Faults of where the mask's cells begin and of how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.faults.recorded.edit import after, every, extents, need, need_padding, with_inputs
from engine.faults.recorded.injector import RecordedInjector
from engine.faults.recorded.masks import tree_columns_only
from engine.layout import indptr
from engine.step import VerifyStep


def _offsets_of_block(step: VerifyStep) -> VerifyStep:
    """Cells of block_size rows a request, each with as many tree columns."""
    width = need(step.config.block_size, "config.block_size")
    before = extents(step).mask_columns_before_tree
    return with_inputs(step, mask_indptr=indptr(width * (before + width)))


def _live_mask_only(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    need_padding(steps)
    return every(_live_mask)(steps)


def _live_mask(step: VerifyStep) -> VerifyStep:
    """The buffer ends with the live batch."""
    buffer = need(step.inputs.custom_mask, "inputs.custom_mask")
    geometry = extents(step)
    ends = geometry.byte_indptr if geometry.bits else geometry.mask_indptr
    return with_inputs(step, custom_mask=buffer[: ends[step.raw_bs]])


def _draft_columns_twice(step: VerifyStep) -> VerifyStep:
    """Draft columns are counted in the lengths and added once more; the buffer is as long as its last offset says."""
    geometry = extents(step)
    offsets = indptr(geometry.q_lens * (geometry.prefix_lens + 2 * geometry.q_lens))
    buffer = need(step.inputs.custom_mask, "inputs.custom_mask")
    rest = np.zeros(max(int(offsets[-1]) - len(buffer), 0), np.uint8)
    return with_inputs(step, mask_indptr=offsets, custom_mask=np.concatenate([buffer, rest]))


def _full_offsets(step: VerifyStep) -> VerifyStep:
    """Offsets of rows that begin with the prefix columns; the buffer was allocated for them."""
    offsets = replace(extents(step), qlen_only=False).mask_indptr
    buffer = need(step.inputs.custom_mask, "inputs.custom_mask")
    rest = np.zeros(int(offsets[-1]) - len(buffer), np.uint8)
    return with_inputs(step, mask_indptr=offsets, custom_mask=np.concatenate([buffer, rest]))


INJECTORS = (
    RecordedInjector(
        "offsets-of-block",
        "mask_indptr is made from block_size rows a request although budget + 1 rows are sent.",
        every(_offsets_of_block),
    ),
    RecordedInjector(
        "live-mask-only",
        "The mask of the live batch is handed to a replay whose offsets go on over padded requests.",
        _live_mask_only,
    ),
    RecordedInjector(
        "draft-columns-twice",
        "mask_indptr counts the draft columns of each row twice.",
        every(_draft_columns_twice),
    ),
    RecordedInjector(
        "full-offsets",
        "The mask holds tree columns alone, its offsets count the prefix columns too.",
        after(tree_columns_only, every(_full_offsets)),
    ),
)
