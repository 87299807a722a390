"""Other ways to decode a mask buffer: hypotheses about how its writer packed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.checks.context import StepContext
from engine.layout import UNREAD, Cells, indptr
from engine.step import Int64

MAX_EXTRA_STRIDE = 512  # cells that a row may be padded by


@dataclass(frozen=True, eq=False)
class Decoding:
    """One way to read a request's cells."""

    diagnosis: str
    cells: Cells  # [q_len * stride], in the order of the buffer
    stride: int
    found: int | str  # what was used, in words or numbers of the diagnosis


def alternatives(context: StepContext, request: int) -> Iterator[Decoding]:
    """In the order of the diagnoses."""
    geometry = context.oracle.geometry
    if geometry.bits:
        yield from _bit_order(context, request)
        yield from _one_stream(context, request)
    yield from _strides(context, request)


def reproduces(context: StepContext, request: int, decoding: Decoding) -> bool:
    """Whether the decoding equals the intended mask in every cell of the real rows that the layout holds."""
    rows = context.oracle.num_verified(request)
    want = _wanted(context, request)
    have = _rows(decoding.cells, decoding.stride, rows, want.shape[1])
    return have is not None and np.array_equal(have, want)


def _wanted(context: StepContext, request: int) -> Cells:
    """Intended cells of the real rows, in the columns that the buffer holds."""
    geometry = context.oracle.geometry
    skipped = int(geometry.prefix_lens[request] - geometry.mask_columns_before_tree[request])
    return context.intended[request].cells[: context.oracle.num_verified(request), skipped:]


def _rows(cells: Cells, stride: int, rows: int, columns: int) -> Cells | None:
    """Cells as rows ``stride`` apart, None where the buffer ends before the last of them."""
    places = np.arange(rows)[:, None] * stride + np.arange(columns)
    if not places.size or int(places.max()) >= len(cells):
        return None
    chosen: Cells = cells[places]
    return None if (chosen == UNREAD).any() else chosen


def _bits(buffer: NDArray[np.uint8], order: str) -> Cells:
    unpacked = np.unpackbits(buffer, bitorder="big" if order == "big" else "little")
    return unpacked.astype(np.int8)


def _bit_order(context: StepContext, request: int) -> Iterator[Decoding]:
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    assert buffer is not None
    first, last = geometry.byte_indptr[request], geometry.byte_indptr[request + 1]
    stride = int(geometry.strides[request])
    yield Decoding("bit-order", _bits(buffer[first:last], "big"), stride, "big")


def _one_stream(context: StepContext, request: int) -> Iterator[Decoding]:
    """All requests in one stream of bits: a request begins where the bits before it end."""
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    assert buffer is not None
    start = int(geometry.mask_indptr[request])
    if start != int(geometry.byte_indptr[request]) * 8:
        cells = _bits(buffer, "little")[start:]
        stride = int(geometry.strides[request])
        yield Decoding("request-not-byte-aligned", cells, stride, start)


def _strides(context: StepContext, request: int) -> Iterator[Decoding]:
    """Rows farther apart, or overlapping: every stride that leaves the last row inside the buffer."""
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    assert buffer is not None
    rows, true = context.oracle.num_verified(request), int(geometry.strides[request])
    if rows < 2:
        return
    everything = _bits(buffer, "little") if geometry.bits else (buffer != 0).astype(np.int8)
    second = _wanted(context, request)[1]
    for stride in range(1, true + MAX_EXTRA_STRIDE):
        if stride == true:
            continue
        for start in dict.fromkeys(_starts(context, request, stride)):
            row = everything[start + stride : start + stride + len(second)]
            if len(row) == len(second) and np.array_equal(row, second):
                yield Decoding("row-stride", everything[start:], stride, stride)


def _starts(context: StepContext, request: int, stride: int) -> Iterator[int]:
    """Where the request may begin: where it should, or behind requests whose rows are padded alike."""
    geometry = context.oracle.geometry
    unit = 8 if geometry.bits else 1
    bases = geometry.byte_indptr if geometry.bits else geometry.mask_indptr
    yield int(bases[request]) * unit
    extra = stride - int(geometry.strides[request])
    sizes: Int64 = geometry.q_lens * (geometry.strides + extra)
    if (sizes >= 0).all():
        padded = indptr((sizes + 7) // 8) * 8 if geometry.bits else indptr(sizes)
        yield int(padded[request])
