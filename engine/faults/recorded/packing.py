"""Faults of how the mask's cells are packed: the writer's layout is not its reader's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.faults.recorded.edit import (
    after,
    every,
    extents,
    need,
    need_plain,
    with_config,
    with_inputs,
)
from engine.faults.recorded.injector import RecordedInjector
from engine.faults.recorded.masks import as_bits, blocks, flat_blocks
from engine.layout import indptr
from engine.step import UInt8, VerifyStep


def _packed_as(step: VerifyStep, pack: Callable[[UInt8], UInt8]) -> VerifyStep:
    """The buffer of another writer, which packs request after request; the offsets stay the reader's."""
    parts = [pack(block) for block in flat_blocks(step, blocks(step))]
    return with_inputs(step, custom_mask=np.concatenate(parts))


def _most_significant_first(step: VerifyStep) -> VerifyStep:
    return _packed_as(step, lambda block: np.packbits(block.ravel(), bitorder="big"))


def _one_bit_stream(step: VerifyStep) -> VerifyStep:
    """All cells of the batch in a row, packed at once."""
    stream = np.concatenate([block.ravel() for block in flat_blocks(step, blocks(step))])
    return with_inputs(step, custom_mask=np.packbits(stream, bitorder="little"))


def _rows_of_whole_bytes(step: VerifyStep) -> VerifyStep:
    """Each row of the mask packed by itself, as packing along the last axis does."""
    return _packed_as(step, lambda block: np.packbits(block, axis=1, bitorder="little").ravel())


def _rows_of_buffer_width(step: VerifyStep) -> VerifyStep:
    """Rows as far apart as a two-dimensional buffer for the longest context has them."""
    longest = need(step.config.max_context, "config.max_context")

    def spread(block: UInt8) -> UInt8:
        wide = np.zeros((len(block), longest + len(block)), np.uint8)
        wide[:, : block.shape[1]] = block
        return wide.ravel()

    return _packed_as(step, spread)


def _byte_offsets_in_bits(step: VerifyStep) -> VerifyStep:
    """The offsets of cells, not divided by 8."""
    return with_inputs(step, byte_indptr=extents(step).mask_indptr)


def _byte_offsets_rounded_down(step: VerifyStep) -> VerifyStep:
    """The offsets of cells divided by 8, as if the requests were packed in one stream."""
    return with_inputs(step, byte_indptr=extents(step).mask_indptr // 8)


def _bits_taken_for_bytes(step: VerifyStep) -> VerifyStep:
    """The reader was told nothing of the packing."""
    return with_inputs(with_config(step, mask_encoding="bytes"), byte_indptr=None)


def _bytes_taken_for_bits(step: VerifyStep) -> VerifyStep:
    """The reader unpacks bits from a mask of one byte a cell."""
    packed = (np.diff(extents(step).mask_indptr) + 7) // 8
    return with_inputs(with_config(step, mask_encoding="bits"), byte_indptr=indptr(packed))


def _unpacked(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """The same steps. Raises ``ValueError`` for masks of packed bits."""
    need_plain(steps, "mask_encoding")
    return list(steps)


INJECTORS = (
    RecordedInjector(
        "most-significant-first",
        "Mask bits are packed most significant first, their reader takes the least significant first.",
        after(as_bits, every(_most_significant_first)),
    ),
    RecordedInjector(
        "one-bit-stream",
        "The mask bits of all requests are packed in one stream, so later ones begin within a byte.",
        after(as_bits, every(_one_bit_stream)),
    ),
    RecordedInjector(
        "rows-of-whole-bytes",
        "Each row of the mask is packed by itself and ends with a whole byte, its reader counts cells.",
        after(as_bits, every(_rows_of_whole_bytes)),
    ),
    RecordedInjector(
        "rows-of-buffer-width",
        "Mask rows lie as far apart as in a buffer for the longest context, their reader expects no gaps.",
        after(_unpacked, every(_rows_of_buffer_width)),
    ),
    RecordedInjector(
        "byte-offsets-in-bits",
        "byte_indptr holds the offsets of the mask's bits, without a division by 8.",
        after(as_bits, every(_byte_offsets_in_bits)),
    ),
    RecordedInjector(
        "byte-offsets-rounded-down",
        "byte_indptr is made from the mask's bits divided by 8, although each request begins a byte.",
        after(as_bits, every(_byte_offsets_rounded_down)),
    ),
    RecordedInjector(
        "bits-taken-for-bytes",
        "The mask is packed in bits, its reader takes each byte for a cell.",
        after(as_bits, every(_bits_taken_for_bytes)),
    ),
    RecordedInjector(
        "bytes-taken-for-bits",
        "The mask has a byte a cell, its reader takes each bit for a cell.",
        after(_unpacked, every(_bytes_taken_for_bits)),
    ),
)
