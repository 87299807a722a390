"""Other ways to decode a mask buffer: hypotheses about how its writer packed it.

A hypothesis counts only if it equals the intended mask in every cell of the request's real rows. Rows at another
stride are also asked to be possible: they may not run over a request whose own cells are right, and a single cell
that differs is no evidence for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.checks.context import StepContext, once
from engine.layout import UNREAD, VISIBLE, Cells, indptr

ROUNDED_TO = (4, 8, 16, 32, 64, 128)  # cells that builders pad a row to a multiple of
MAX_EXTRA_STRIDE = 512  # cells that a row may be padded by
MIN_STRIDE_CELLS = 2  # cells that must differ before another stride is thought of


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
    yield from _other_packings(context, request)


@once
def explanation(context: StepContext, request: int) -> Decoding | None:
    """The first other decoding that turns a wrong mask into the intended one, None if there is none."""
    if context.built_difference(request) is None:
        return None
    found = alternatives(context, request)
    return next((one for one in found if reproduces(context, request, one)), None)


def explains_all(context: StepContext) -> bool:
    """Whether some request's mask is wrong, and each wrong one has an explanation."""
    wrong = [i for i in context.readable if context.built_difference(i) is not None]
    return bool(wrong) and all(explanation(context, i) is not None for i in wrong)


def right_at_recorded_bytes(context: StepContext, request: int) -> bool:
    """Whether the packed cells are the intended ones where ``byte_indptr`` as recorded says that they begin."""
    recorded, geometry = context.step.inputs.byte_indptr, context.oracle.geometry
    buffer = context.step.inputs.custom_mask
    if recorded is None or buffer is None or not geometry.bits or request >= len(recorded):
        return False
    first = int(recorded[request])
    if not 0 <= first <= len(buffer):
        return False
    stride = int(geometry.strides[request])
    return reproduces(context, request, Decoding("", _bits(buffer[first:], "little"), stride, 0))


def reproduces(context: StepContext, request: int, decoding: Decoding) -> bool:
    """Whether the decoding equals the intended mask in every cell of the real rows that the layout holds."""
    want = _wanted(context, request)
    columns = min(want.shape[1], decoding.stride)  # narrower rows hold no more
    have = _rows(decoding.cells, decoding.stride, len(want), columns)
    if have is None or (want[:, columns:] == VISIBLE).any():
        return False
    return np.array_equal(have, want[:, :columns])


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
    """Rows farther apart, or closer: every stride that leaves the last row inside the buffer."""
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    assert buffer is not None
    want, true = _wanted(context, request), int(geometry.strides[request])
    differing = context.built_difference(request)
    if len(want) < 2 or differing is None or len(differing.cells) < MIN_STRIDE_CELLS:
        return
    everything = _bits(buffer, "little") if geometry.bits else (buffer != 0).astype(np.int8)
    starts, right = _starts(context, request), _right_start(context, request)
    for stride in range(1, true + MAX_EXTRA_STRIDE):
        width = min(len(want[1]), stride)
        for start in starts(stride) - ({right} if stride == true else set()):
            end = start + (len(want) - 1) * stride + width
            if end > len(everything):
                continue
            second = everything[start + stride : start + stride + width]
            if (second == want[1][:width]).all() and _is_free(context, request, end):
                yield Decoding("row-stride", everything[start:], stride, stride)


def _is_free(context: StepContext, request: int, end: int) -> bool:
    """Whether rows that end at a cell (bits: a bit) run over no other request that is right where it is."""
    geometry = context.oracle.geometry
    unit = 8 if geometry.bits else 1
    bases = geometry.byte_indptr if geometry.bits else geometry.mask_indptr
    behind = [i for i in context.readable if i > request and int(bases[i]) * unit < end]
    return all(context.built_difference(i) is not None for i in behind)


def _right_start(context: StepContext, request: int) -> int:
    """Where the request should begin, in cells (bits where packed)."""
    geometry = context.oracle.geometry
    return (
        int(geometry.byte_indptr[request]) * 8
        if geometry.bits
        else int(geometry.mask_indptr[request])
    )


def _starts(context: StepContext, request: int) -> Callable[[int], set[int]]:
    """By stride, where the request may begin: where it should, or behind requests whose rows are padded alike.

    Alike: by as many cells, to the same stride, or each up to a multiple of the same number (bytes, words, tiles).
    """
    geometry, right = context.oracle.geometry, _right_start(context, request)
    unit, true = 8 if geometry.bits else 1, int(geometry.strides[request])
    before = list(zip(geometry.q_lens.tolist(), geometry.strides.tolist(), strict=True))[:request]

    def starts(stride: int) -> set[int]:
        """In cells (bits where packed); a packed request begins at a whole byte."""
        alike = sum(
            -(-rows * max(other + stride - true, 0) // unit) * unit for rows, other in before
        )
        same = sum(-(-rows * stride // unit) * unit for rows, _ in before)
        rounded = {
            sum(-(-rows * (-(-other // step) * step) // unit) * unit for rows, other in before)
            for step in ROUNDED_TO
            if -(-true // step) * step == stride
        }
        return {right, alike, same, *rounded}

    return starts


def _other_packings(context: StepContext, request: int) -> Iterator[Decoding]:
    """The other encoding than the recorded one, and the wrong bit order in one stream."""
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    assert buffer is not None
    stride, start = int(geometry.strides[request]), int(geometry.mask_indptr[request])
    if geometry.bits:
        cells = (buffer != 0).astype(np.int8)[start:]
        yield Decoding("packing", cells, stride, "one byte a cell")
        cells = _bits(buffer, "big")[start:]
        yield Decoding("packing", cells, stride, "one stream of bits, most significant first")
        return
    first = int(indptr((geometry.q_lens * geometry.strides + 7) // 8)[request]) * 8
    for order in ("little", "big"):
        for begin in dict.fromkeys((first, start)):
            name = "least" if order == "little" else "most"
            found = f"bits, {name} significant first"
            yield Decoding("packing", _bits(buffer, order)[begin:], stride, found)
