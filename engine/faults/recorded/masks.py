"""Other clean layouts of the mask: packed bits, tree columns alone, a sliding window. None of them is a fault."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.faults.recorded.edit import (
    extents,
    need,
    need_plain,
    on_backend,
    rows_of,
    with_config,
    with_inputs,
)
from engine.layout import Cells, built_mask, indptr
from engine.step import UInt8, VerifyStep


def blocks(step: VerifyStep) -> list[Cells]:
    """Cells of each captured request as the buffer holds them, int8 [q_len, prefix + q_len] of 0 and 1."""
    need(step.inputs.custom_mask, "inputs.custom_mask")
    geometry = extents(step)
    return [np.maximum(built_mask(step, geometry, i).cells, 0) for i in range(geometry.bs)]


def flat_blocks(step: VerifyStep, cells: Sequence[Cells]) -> list[UInt8]:
    """The columns of each block that the step's layout holds, uint8 [q_len, columns]."""
    geometry = extents(step)
    skipped = (geometry.prefix_lens - geometry.mask_columns_before_tree).tolist()
    return [block[:, first:].astype(np.uint8) for block, first in zip(cells, skipped, strict=True)]


def with_blocks(step: VerifyStep, cells: Sequence[Cells]) -> VerifyStep:
    """The step whose buffer and offsets hold these cells in its own layout and encoding."""
    geometry = extents(step)
    flat = [block.ravel() for block in flat_blocks(step, cells)]
    if geometry.bits:
        flat = [np.packbits(block, bitorder="little") for block in flat]
    return with_inputs(
        step,
        custom_mask=np.concatenate(flat),
        mask_indptr=geometry.mask_indptr,
        byte_indptr=indptr(np.array([len(part) for part in flat])) if geometry.bits else None,
    )


def as_bits(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """Masks of packed bits: least significant first, each request from a whole byte on.

    Raises ``ValueError`` for masks that are packed already.
    """
    need_plain(steps, "mask_encoding")
    return [with_blocks(with_config(step, mask_encoding="bits"), blocks(step)) for step in steps]


def tree_columns_only(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """Masks without prefix columns (``mask_layout`` "qlen"), for a kernel that takes the prefix for visible.

    Raises ``ValueError`` for masks that are so already, and for a sliding window, whose prefix columns say something.
    """
    need_plain(steps, "mask_layout", "sliding_window")
    return [with_blocks(with_config(step, mask_layout="qlen"), blocks(step)) for step in steps]


def windowed(steps: Sequence[VerifyStep], window: int) -> list[VerifyStep]:
    """The masks of a layer with a sliding window of ``window`` tokens, read by a backend that reads prefix columns.

    A key is hidden where the query's position is ``window`` or more past its own. Raises ``ValueError`` for masks that
    have a window already, or no prefix columns.
    """
    need_plain(steps, "mask_layout", "sliding_window")
    return [_windowed(step, window) for step in steps]


def _windowed(step: VerifyStep, window: int) -> VerifyStep:
    positions = need(step.inputs.positions, "inputs.positions")
    cells = blocks(step)
    for request in range(step.raw_bs):
        queries = positions[rows_of(step, request)]
        prefix_len = int(extents(step).prefix_lens[request])
        keys = np.concatenate([np.arange(prefix_len), queries])
        cells[request] *= queries[:, None] - keys < window
    changed = with_config(on_backend(step, "flashinfer"), sliding_window=window)
    return with_blocks(changed, cells)
