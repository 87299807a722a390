"""The framing of an Arrow IPC stream, walked before pyarrow sees a byte of it.

A message is ``FF FF FF FF``, the int32 length of its metadata, the metadata (a flatbuffer), then
the body whose length the metadata tells. Covered: where each message lies, whether a record batch
has the arrays of our schema. Not covered: its buffers (``engine.trace.ipc_buffers``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.trace import limits
from engine.trace.errors import FieldProblem

CONTINUATION = 0xFFFFFFFF
CODECS = {0: "lz4", 1: "zstd"}  # CompressionType of Arrow's Message.fbs
SCHEMA, RECORD_BATCH = 1, 3  # MessageHeader of Arrow's Message.fbs
END_OF_STREAM = -1  # not a message: a prefix without metadata


class Bytes(Protocol):
    """Random access to a file's bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""

    def size(self) -> int:
        """Bytes there are now."""


@dataclass(frozen=True)
class Frame:
    """One complete message: ``[offset, body)`` is prefix and metadata, ``[body, end)`` its body."""

    offset: int
    body: int
    end: int
    header_type: int


@dataclass(frozen=True, eq=False)
class BatchLayout:
    """Metadata of a record batch."""

    rows: int
    node_lengths: NDArray[np.int64]  # [arrays], entries of each
    offsets: NDArray[np.int64]  # [buffers], bytes into the body
    lengths: NDArray[np.int64]  # [buffers], bytes as stored
    codec: str | None  # None: no buffer is compressed


def next_frame(source: Bytes, offset: int, metadata_limit: int) -> Frame | None:
    """The message at ``offset``; None where it is not complete.

    Raises ``FieldProblem`` for bytes that are no message, or one beyond the limits.
    """
    prefix = source.read(offset, 8)
    if len(prefix) < 8:
        return None
    marker, length = struct.unpack("<Ii", prefix)
    if marker != CONTINUATION:
        raise FieldProblem("an Arrow message", f"0x{marker:08x} at byte {offset}")
    if length == 0:
        return Frame(offset, offset + 8, offset + 8, END_OF_STREAM)
    if not 0 < length <= metadata_limit:
        raise FieldProblem(f"metadata of at most {metadata_limit} bytes", str(length))
    metadata = source.read(offset + 8, length)
    if len(metadata) < length:
        return None
    message = Table.root(metadata)
    body_length = message.number(3, "<q")
    if not 0 <= body_length <= limits.MAX_BODY_BYTES:
        raise FieldProblem(f"a body of at most {limits.MAX_BODY_BYTES} bytes", str(body_length))
    body = offset + 8 + length
    if body + body_length > source.size():
        return None
    return Frame(offset, body, body + body_length, message.number(1, "<B"))


def batch_layout(metadata: bytes) -> BatchLayout:
    """Layout of a record batch from a message's metadata (without the 8 bytes before it)."""
    batch = Table.root(metadata).table(2)
    nodes, buffers = batch.pairs(1), batch.pairs(2)
    rows, codec = batch.number(0, "<q"), _codec(batch)
    return BatchLayout(rows, nodes[:, 0], buffers[:, 0], buffers[:, 1], codec)


def _codec(batch: Table) -> str | None:
    if not batch.has(3):
        return None
    kind, method = (batch.table(3).number(field, "<b") for field in (0, 1))
    if kind not in CODECS or method:
        raise FieldProblem("buffers compressed with lz4 or zstd", f"codec {kind}, method {method}")
    return CODECS[kind]


def check_layout(layout: BatchLayout, nodes: int, buffers: int) -> None:
    """Raise ``FieldProblem`` unless the batch has one row and so many arrays and buffers."""
    if layout.rows != 1:
        raise FieldProblem("one step a record batch", f"{layout.rows} rows")
    found = (len(layout.node_lengths), len(layout.lengths))
    if found != (nodes, buffers):
        raise FieldProblem(f"{(nodes, buffers)} arrays and buffers", f"{found}")
    largest = np.maximum.reduce(layout.node_lengths.view(np.uint64))  # a negative one is huge
    if largest > limits.MAX_STEP_CELLS:
        raise FieldProblem(f"arrays of 0 … {limits.MAX_STEP_CELLS} entries", "another length")


SCALARS = {form: struct.Struct(form).unpack_from for form in ("<b", "<B", "<H", "<i", "<I", "<q")}
UINT16, INT32 = SCALARS["<H"], SCALARS["<i"]


class Table:
    """A flatbuffer table; every access is checked against the bytes that there are."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes | bytearray, position: int) -> None:
        self.data, self.position = data, position

    @classmethod
    def root(cls, data: bytes | bytearray) -> Table:
        """The outermost table."""
        return cls(data, _unpack(data, 0, "<I"))

    def _slot(self, field: int) -> int:
        """Absolute position of a field, 0 where it is left out."""
        data, position, relative = self.data, self.position, 0
        try:
            vtable = position - INT32(data, position)[0]
            if vtable < 0:
                raise FieldProblem("an Arrow message", "damaged metadata")
            if 4 + 2 * field < UINT16(data, vtable)[0]:
                relative = UINT16(data, vtable + 4 + 2 * field)[0]
        except struct.error:
            raise FieldProblem("an Arrow message", "damaged metadata") from None
        return position + relative if relative else 0

    def has(self, field: int) -> bool:
        """Whether the field is there."""
        return self._slot(field) != 0

    def number(self, field: int, form: str) -> int:
        """A scalar; 0 where it is left out."""
        slot = self._slot(field)
        return _unpack(self.data, slot, form) if slot else 0

    def put(self, field: int, form: str, value: int) -> None:
        """Another value for a scalar that is there; the table lies in a bytearray."""
        slot = self._slot(field)
        assert slot
        assert isinstance(self.data, bytearray)
        struct.pack_into(form, self.data, slot, value)

    def table(self, field: int) -> Table:
        """A nested table."""
        slot = self._slot(field)
        if not slot:
            raise FieldProblem("an Arrow message", "metadata without its header")
        return Table(self.data, slot + _unpack(self.data, slot, "<I"))

    def pairs(self, field: int) -> NDArray[np.int64]:
        """A vector of structs of two int64, [n, 2]; a view of it."""
        slot = self._slot(field)
        if not slot:
            raise FieldProblem("an Arrow message", "a record batch without its arrays")
        start = slot + _unpack(self.data, slot, "<I")
        count = 2 * _unpack(self.data, start, "<I")
        if start + 4 + 8 * count > len(self.data):
            raise FieldProblem("an Arrow message", "a vector beyond its metadata")
        return np.frombuffer(self.data, np.int64, count, start + 4).reshape(-1, 2)


def _unpack(data: bytes | bytearray, position: int, form: str) -> int:
    try:
        value: int = SCALARS[form](data, position)[0]  # positions are sums of unsigned numbers
    except struct.error:
        raise FieldProblem("an Arrow message", "damaged metadata") from None
    return value
