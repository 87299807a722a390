"""Record batches to Arrow IPC messages in which only the larger buffers are compressed.

Arrow lets a buffer of a compressed batch be stored as it is. pyarrow compresses all of them; a step has 130, most of
them of some bytes, which come out longer and cost a reader more than all the rest. Covered: batches of our schema, one
row each; any Arrow reader reads the result. Not covered: the schema's own message.
"""

from __future__ import annotations

import io
import struct

import pyarrow as pa

from engine.step import VerifyStep
from engine.trace.arrow_codec import schema, step_to_batch
from engine.trace.ipc import Table, batch_layout

CODEC = "zstd"
SMALL = 2048  # bytes; a shorter buffer is stored as it is
AS_IT_IS = struct.pack("<q", -1)  # before the bytes, where a compressed buffer has its length
PREFIX, ALIGNMENT = 8, 8  # bytes before a message's metadata; what lengths are rounded up to


class Encoder:
    """Messages of batches, without a schema before the first one."""

    def __init__(self) -> None:
        self._codec, self._plain = pa.Codec(CODEC), _Stream(None)
        packed = _Stream(CODEC).encode(step_to_batch(VerifyStep(requests=())))
        # All batches' alike, but for lengths and places.
        self._prefix, self._metadata, _ = _parts(packed)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """One encapsulated message."""
        _, plain, body = _parts(self._plain.encode(batch))
        layout = batch_layout(plain)
        stored: list[bytes] = []
        places, end = [], 0
        for offset, length in zip(layout.offsets.tolist(), layout.lengths.tolist(), strict=True):
            data = self._pack(body[offset : offset + length])
            places.append((end, len(data)))
            stored += [data, bytes(-len(data) % ALIGNMENT)]
            end += len(data) + len(stored[-1])
        metadata = bytearray(self._metadata)
        message = Table.root(metadata)
        message.put(3, "<q", end)
        message.table(2).pairs(1)[:] = Table.root(plain).table(2).pairs(1)
        message.table(2).pairs(2)[:] = places
        return b"".join([self._prefix, metadata, *stored])

    def _pack(self, data: bytes) -> bytes:
        """A buffer as it is stored."""
        if len(data) >= SMALL:
            packed: bytes = self._codec.compress(data, asbytes=True)
            if len(packed) < len(data):
                return struct.pack("<q", len(data)) + packed
        return AS_IT_IS + data if data else b""


class _Stream:
    """pyarrow's own messages."""

    def __init__(self, codec: str | None):
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        self._buffer = io.BytesIO()
        self._stream = pa.ipc.new_stream(self._buffer, schema(), options=options)
        self.encode(step_to_batch(VerifyStep(requests=())))  # the schema goes out with the first

    def encode(self, batch: pa.RecordBatch) -> bytes:
        self._buffer.seek(0)
        self._buffer.truncate()
        self._stream.write_batch(batch)
        return self._buffer.getvalue()


def _parts(message: bytes) -> tuple[bytes, bytes, bytes]:
    """Prefix, metadata and body."""
    body = PREFIX + int(struct.unpack_from("<i", message, 4)[0])
    return message[:PREFIX], message[PREFIX:body], message[body:]
