"""Where a mask cell lives, and what a buffer says when it is read.

Three of the four masks are told apart here, all as :class:`MaskView` in the same coordinates (local row × [prefix,
then nodes]): **built** is the buffer decoded with the true geometry, **addressed** is what the kernel's own address
formula reads with the metadata it was given; **intended** comes from ``engine.oracle``. The fourth, measured, needs
a kernel.

Address formula (SGLang's Triton verify kernel, full layout): ``cell = mask_indptr[i] + row * (kv_len + width) +
column``, rows ``qo_indptr[i] … qo_indptr[i+1]-1``, width = their number. Example: ``mask_indptr [0, 24]``, prefix 2,
width 4: row 1, node 3 lies at cell 0 + 1 * 6 + 2 + 3 = 11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from engine.lazy import lazy
from engine.step import Int64, VerifyStep

HIDDEN, VISIBLE = 0, 1
UNREAD = -1  # no program computes this row, or the cell lies outside the buffer
Cells = NDArray[np.int8]


class MaskKind(StrEnum):
    """The four masks, always under these names."""

    INTENDED = "intended"
    BUILT = "built"
    ADDRESSED = "addressed"
    MEASURED = "measured"


@dataclass(frozen=True, eq=False)
class MaskView:
    """One mask of one request."""

    kind: MaskKind
    prefix_len: int
    cells: Cells  # [q_len, prefix_len + q_len]: HIDDEN, VISIBLE or UNREAD
    places: Int64 | Callable[[], Int64]  # ``bytes``, or what computes them once they are asked for
    foreign_rows: tuple[int, ...] = ()  # local rows that a program of another request computes

    @lazy
    def bytes(self) -> Int64:
        """Offset into ``custom_mask`` that each cell was read from, -1 for none, int64 [q_len, prefix_len + q_len]."""
        return self.places() if callable(self.places) else self.places

    @property
    def q_len(self) -> int:
        """Rows."""
        return len(self.cells)


@dataclass(frozen=True, eq=False)
class Geometry:
    """True extents of a batch, from prefix lengths and rows alone. Nobody may change the arrays that it gives."""

    prefix_lens: Int64  # [captured_bs]
    q_lens: Int64  # [captured_bs]
    qlen_only: bool = False  # tree columns only
    bits: bool = False  # packed, each request byte-aligned, least significant bit first

    @property
    def bs(self) -> int:
        """Requests, padded ones included."""
        return len(self.q_lens)

    @lazy
    def strides(self) -> Int64:
        """Cells from one row of a request to its next, [bs]."""
        return self.q_lens if self.qlen_only else self.prefix_lens + self.q_lens

    @lazy
    def mask_columns_before_tree(self) -> Int64:
        """Prefix columns that the buffer holds, [bs]."""
        return np.zeros_like(self.prefix_lens) if self.qlen_only else self.prefix_lens

    @lazy
    def qo_indptr(self) -> Int64:
        """First row of each request, [bs + 1]."""
        return indptr(self.q_lens)

    @lazy
    def mask_indptr(self) -> Int64:
        """First cell of each request, [bs + 1]."""
        return indptr(self.q_lens * self.strides)

    @lazy
    def byte_indptr(self) -> Int64:
        """First byte of each request when cells are packed bits, [bs + 1]."""
        return indptr((self.q_lens * self.strides + 7) // 8)

    def byte_of(self, request: int, row: int, column: int) -> int | None:
        """Offset into ``custom_mask`` of a cell, None for a prefix column that the layout leaves out."""
        inner = column - int(self.prefix_lens[request] - self.mask_columns_before_tree[request])
        if inner < 0:
            return None
        cell = row * int(self.strides[request]) + inner
        if self.bits:
            return int(self.byte_indptr[request]) + cell // 8
        return int(self.mask_indptr[request]) + cell


def indptr(lengths: Int64) -> Int64:
    """Exclusive running sum with the total last: ``[2, 4, 3]`` gives ``[0, 2, 6, 9]``."""
    sums = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=sums[1:])
    return sums


def flat_cells(step: VerifyStep, geometry: Geometry, request: int) -> Cells:
    """Cells of one request as they lie in the buffer, in order, int8 [q_len * stride]; UNREAD past the buffer's end."""
    count = int(geometry.q_lens[request] * geometry.strides[request])
    buffer = step.inputs.custom_mask
    assert buffer is not None, "custom_mask is not recorded"
    if geometry.bits:
        first = int(geometry.byte_indptr[request])
        raw = buffer[first : first + (count + 7) // 8]
        values = np.unpackbits(raw, bitorder="little")[:count].astype(np.int8)
    else:
        first = int(geometry.mask_indptr[request])
        values = (buffer[first : first + count] != 0).astype(np.int8)
    cells = np.full(count, UNREAD, np.int8)
    cells[: len(values)] = values
    return cells


def _flat_places(geometry: Geometry, request: int) -> Int64:
    """Byte of each cell that :func:`flat_cells` gives."""
    cells = np.arange(int(geometry.q_lens[request] * geometry.strides[request]), dtype=np.int64)
    if geometry.bits:
        return int(geometry.byte_indptr[request]) + cells // 8
    return int(geometry.mask_indptr[request]) + cells


def built_mask(step: VerifyStep, geometry: Geometry, request: int) -> MaskView:
    """The buffer decoded with the true geometry."""
    q_len, prefix_len = int(geometry.q_lens[request]), int(geometry.prefix_lens[request])
    cells = np.full((q_len, prefix_len + q_len), VISIBLE, np.int8)
    skipped = prefix_len - int(geometry.mask_columns_before_tree[request])
    cells[:, skipped:] = flat_cells(step, geometry, request).reshape(q_len, -1)

    def places() -> Int64:
        out = np.full(cells.shape, -1, np.int64)
        out[:, skipped:] = _flat_places(geometry, request).reshape(q_len, -1)
        return out

    return MaskView(MaskKind.BUILT, prefix_len, cells, places)


def addressed_mask(
    step: VerifyStep, geometry: Geometry, request: int, *, reads_prefix: bool
) -> MaskView:
    """What the kernel reads for one request's rows with the recorded metadata.

    Rows that no program covers are UNREAD. Where a program of another request covers a row, only its tree columns that
    fall on this request's rows are meaningful; its prefix is not this request's, so the prefix columns are HIDDEN.
    ``reads_prefix``: whether the backend reads prefix columns; otherwise they are VISIBLE as far as ``kv_indptr`` goes.
    """
    inputs = step.inputs
    assert inputs.qo_indptr is not None
    assert inputs.kv_indptr is not None
    assert inputs.mask_indptr is not None
    q_len, prefix_len = int(geometry.q_lens[request]), int(geometry.prefix_lens[request])
    first_row = int(geometry.qo_indptr[request])
    cells = np.full((q_len, prefix_len + q_len), UNREAD, np.int8)
    places = np.full(cells.shape, -1, np.int64)
    programs = _programs(
        inputs.qo_indptr, inputs.max_extend_len, range(first_row, first_row + q_len)
    )
    known = min(len(inputs.mask_indptr), len(inputs.kv_indptr)) - 1
    foreign = []
    for row, program in enumerate(programs):
        if not 0 <= program < known:
            continue
        if program != request:
            foreign.append(row)
        _read_row(step, geometry, request, row, program, reads_prefix, cells[row], places[row])
    return MaskView(MaskKind.ADDRESSED, prefix_len, cells, places, tuple(foreign))


def _programs(qo_indptr: Int64, max_extend_len: int | None, rows: range) -> list[int]:
    """Request whose program computes each flat row, -1 where there is none."""
    owners = np.full(len(rows), -1, np.int64)
    taken = np.zeros(len(rows), np.bool_)
    for program, (start, end) in enumerate(pairwise(qo_indptr.tolist())):
        low, high = max(start, rows.start) - rows.start, min(end, rows.stop) - rows.start
        if low >= high:
            continue
        covered = end if max_extend_len is None else start + _tiled(max_extend_len)
        free = np.flatnonzero(~taken[low:high]) + low
        owners[free[free < covered - rows.start]] = program
        taken[low:high] = True
    return [int(owner) for owner in owners]


QUERY_TILE = 64  # rows of one program: the smallest that SGLang's kernel uses


def _tiled(max_extend_len: int) -> int:
    """Rows that the launch grid covers: whole tiles."""
    return -(-max_extend_len // QUERY_TILE) * QUERY_TILE


def _read_row(
    step: VerifyStep,
    geometry: Geometry,
    request: int,
    row: int,
    program: int,
    reads_prefix: bool,
    cells: Cells,
    places: Int64,
) -> None:
    """Fill one row as ``program`` reads it (in place)."""
    inputs = step.inputs
    assert inputs.qo_indptr is not None
    assert inputs.kv_indptr is not None
    assert inputs.mask_indptr is not None
    first_row, prefix_len = int(geometry.qo_indptr[request]), int(geometry.prefix_lens[request])
    start = int(inputs.qo_indptr[program])
    width = int(inputs.qo_indptr[program + 1]) - start
    kv_len = int(inputs.kv_indptr[program + 1] - inputs.kv_indptr[program])
    if step.config.kv_indptr_counts_draft:
        kv_len -= width
    mask_prefix = 0 if geometry.qlen_only else kv_len
    base = int(inputs.mask_indptr[program]) + (first_row + row - start) * (mask_prefix + width)
    cells[:] = HIDDEN
    if program == request:
        known = max(min(kv_len, prefix_len), 0)
        cells[:known] = VISIBLE
        if reads_prefix and not geometry.qlen_only:
            cells[:known], places[:known] = _read(step, geometry, program, base, known)
    # This request's rows that the program's tree columns fall on.
    low = max(start, first_row)
    high = max(min(start + width, first_row + int(geometry.q_lens[request])), low)
    columns = slice(prefix_len + low - first_row, prefix_len + high - first_row)
    first = base + mask_prefix + low - start
    cells[columns], places[columns] = _read(step, geometry, program, first, high - low)


FAR = 1 << 60  # beyond every buffer; offsets past it are as good as this one


def _read(
    step: VerifyStep, geometry: Geometry, program: int, first: int, count: int
) -> tuple[Cells, Int64]:
    """Values of cells from number ``first`` on (UNREAD outside the buffer) and the bytes that they lie in."""
    buffer = step.inputs.custom_mask
    assert buffer is not None
    assert step.inputs.mask_indptr is not None
    places = min(max(first, -FAR), FAR) + np.arange(count, dtype=np.int64)
    bit = np.zeros_like(places)
    if geometry.bits:
        inner = places - step.inputs.mask_indptr[program]
        recorded = step.inputs.byte_indptr
        starts = geometry.byte_indptr if recorded is None else recorded
        start = int(starts[program]) if program < len(starts) else FAR
        places, bit = start + inner // 8, inner % 8
    values = np.full(count, UNREAD, np.int8)
    inside = (places >= 0) & (places < len(buffer))
    raw = buffer[places[inside]]
    values[inside] = (raw >> bit[inside].astype(np.uint8)) & 1 if geometry.bits else raw != 0
    return values, places
