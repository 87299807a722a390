"""The arrays of one Arrow record batch, by number, as the buffers hold them.

Covered: every access is checked against what there is, so a damaged batch gives an error and never other memory. Not
covered: which array belongs to which field (``engine.trace.arrow_plan``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.trace.errors import FieldProblem

SIZES: dict[Any, int] = {np.uint8: 1, np.int32: 4, np.int64: 8}
SPAN = Struct("<ii")  # two entries of an array's offsets


@dataclass(frozen=True, eq=False)
class Batch:
    """Arrays of one batch, depth first. Whatever they hold, only entries that are there are read."""

    lengths: Sequence[int]  # entries of each array
    buffers: Sequence[memoryview]

    def valid(self, buffer: int, row: int) -> bool:
        """Whether a row is not null; ``buffer``: its array's validity bitmap, empty where no row is null."""
        bits = self.buffers[buffer]
        return not bits or bool(bits[row >> 3] >> (row & 7) & 1)

    def nulls(self, node: int, buffer: int) -> NDArray[np.bool_] | None:
        """Which entries of an array are null, None where none is."""
        bits, count = self.buffers[buffer], self.lengths[node]
        if not bits or not count:
            return None
        packed = np.frombuffer(bits, np.uint8, (count + 7) // 8)
        flags = np.unpackbits(packed, count=count, bitorder="little")
        return None if flags.all() else flags == 0

    def refuse_nulls(self, node: int, buffer: int, what: str) -> None:
        """Raise ``FieldProblem`` where an array that may hold no null holds one."""
        if self.buffers[buffer] and self.nulls(node, buffer) is not None:
            raise FieldProblem(what, "null")

    def span(self, buffer: int, row: int, count: int) -> tuple[int, int]:
        """Start and end of a row of lists or strings of ``count`` entries; ``buffer``: its array's offsets."""
        start, end = SPAN.unpack_from(self.buffers[buffer], 4 * row)
        if not 0 <= start <= end <= count:
            raise ValueError(f"offsets {start} and {end} of {count} entries")
        return start, end

    def values(self, buffer: int, kind: Any, start: int, end: int) -> NDArray[Any]:
        """Some entries of a buffer of numbers, a view of it."""
        if start == end:
            return np.empty(0, kind)
        return np.frombuffer(self.buffers[buffer], kind, end - start, start * SIZES[kind])

    def bytes(self, buffer: int, row: int) -> memoryview:
        """A row of strings; ``buffer``: its array's offsets."""
        data = self.buffers[buffer + 1]
        start, end = self.span(buffer, row, len(data))
        return data[start:end]

    def text(self, buffer: int, row: int) -> str:
        """A row of strings as text."""
        try:
            return str(self.bytes(buffer, row), "utf-8")
        except UnicodeDecodeError:
            raise ValueError("Invalid UTF8 in a string") from None
