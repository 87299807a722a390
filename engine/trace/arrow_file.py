"""ArrowFile: the steps of one ``.ddtree.arrow`` file, found at once and decoded when asked for.

Bytes are read at their place, not mapped: a live file that is cut short while it is read then gives
an error, where a mapping would kill the process. What a record claims was bounded before
(``engine.trace.ipc``). It is decoded by our own fields: the file's schema only says which of them it has, since
recordings from before a field existed stay readable.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from engine.step import VerifyStep
from engine.trace import limits
from engine.trace.arrow_batch import Batch
from engine.trace.arrow_decode import KEY_BUFFERS, batch_to_key, batch_to_step, plan_of_file
from engine.trace.arrow_repeats import Repeats
from engine.trace.errors import FieldProblem, TraceFormatError
from engine.trace.header import TraceHeader, header_from_text
from engine.trace.ipc import (
    END_OF_STREAM,
    RECORD_BATCH,
    SCHEMA,
    BatchLayout,
    Bytes,
    Frame,
    batch_layout,
    check_layout,
    next_frame,
)
from engine.trace.ipc_buffers import NOTHING, buffers_of
from engine.trace.validate import validate_step
from engine.trace.writer import HEADER_KEY

CHUNK = 1 << 20
DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    IndexError,
    struct.error,
    MemoryError,
    OverflowError,
)


class FileBytes:
    """Random access to a file that may grow; safe to share between threads."""

    def __init__(self, path: Path):
        self._file = open(path, "rb")  # noqa: SIM115
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        with self._lock:
            self._file.seek(offset)
            return self._file.read(length)

    def size(self) -> int:
        """Bytes there are now."""
        return os.fstat(self._file.fileno()).st_size


class MemoryBytes:
    """Random access to bytes in memory."""

    def __init__(self, data: bytes):
        self._data = data

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        return self._data[offset : offset + length]

    def size(self) -> int:
        """Bytes there are."""
        return len(self._data)


class ArrowFile:
    """Steps of one Arrow recording; ``truncated`` where its last record is not complete."""

    def __init__(self, path: Path, source: Bytes | None = None):
        self.path = path
        self.truncated = False
        self._source = FileBytes(path) if source is None else source
        self._frames: list[Frame] = []
        self._closed = False  # the end-of-stream mark was read
        self._end = 0
        self.header = self._read_schema()
        self.refresh()

    def __len__(self) -> int:
        return len(self._frames)

    def refresh(self) -> int:
        """Look for records that were appended; returns how many there are now."""
        if self._source.size() < self._end:
            raise TraceFormatError("expected a file that only grows, found it cut", str(self.path))
        while not self._closed and (frame := self._next(limits.MAX_METADATA_BYTES)) is not None:
            self._end = frame.end
            self._closed = frame.header_type == END_OF_STREAM
            if not self._closed:
                self._frames.append(self._checked(frame))
        self.truncated = not self._closed and self._source.size() > self._end
        return len(self._frames)

    def step(self, position: int) -> VerifyStep:
        """Decode one step. Raises ``TraceFormatError``."""
        with self._placed(position + 1):
            return self._decoded(self._frames[position])

    def _decoded(self, frame: Frame) -> VerifyStep:
        """The step of one record."""
        layout, body = self._message(frame)
        known = self._repeats.find(layout, body)
        buffers = buffers_of(layout, body, None, self._repeats.buffers if known else NOTHING)
        batch = Batch(layout.node_lengths.tolist(), buffers)
        step = batch_to_step(batch, self._plan, known)
        validate_step(step, known)
        if not known:
            self._repeats.keep(layout, body, step)
        return step

    def key(self, position: int) -> tuple[int, int]:
        """Number and rank of a step without the rest of it. Raises ``TraceFormatError``."""
        with self._placed(position + 1):
            layout, body = self._message(self._frames[position])
            buffers = buffers_of(layout, body, KEY_BUFFERS)
            return batch_to_key(Batch(layout.node_lengths.tolist(), buffers), self._plan)

    def digest(self) -> str:
        """SHA-256 of the complete records, in hex."""
        digest = hashlib.sha256()
        for offset in range(0, self._end, CHUNK):
            digest.update(self._source.read(offset, min(CHUNK, self._end - offset)))
        return digest.hexdigest()

    def _read_schema(self) -> TraceHeader:
        frame = self._next(limits.MAX_HEADER_BYTES + limits.MAX_METADATA_BYTES)
        if frame is None or frame.header_type != SCHEMA:
            found = "the end of the file" if frame is None else "another message"
            raise TraceFormatError(f"expected an Arrow schema first, found {found}", str(self.path))
        self._end = frame.end
        try:
            message = pa.ipc.read_message(self._source.read(frame.offset, frame.end - frame.offset))
            found_schema = pa.ipc.read_schema(message)
            text = (found_schema.metadata or {}).get(HEADER_KEY)
            header = None if text is None else text.decode()
            plan = plan_of_file(found_schema)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise self._damaged(error, None) from None
        if header is None or plan is None:
            raise TraceFormatError(
                f"expected the schema of {HEADER_KEY.decode()} version 1, found another",
                str(self.path),
            )
        self._plan, self._repeats = plan, Repeats(plan)
        return header_from_text(header, str(self.path))

    def _next(self, metadata_limit: int) -> Frame | None:
        try:
            return next_frame(self._source, self._end, metadata_limit)
        except FieldProblem as problem:
            raise problem.at(str(self.path), len(self._frames) + 1) from None

    def _checked(self, frame: Frame) -> Frame:
        expected, found = "", ""
        if frame.header_type != RECORD_BATCH:
            expected, found = "a record batch", f"message type {frame.header_type}"
        elif len(self._frames) >= limits.MAX_STEPS:
            expected, found = f"at most {limits.MAX_STEPS} steps", "more"
        if expected:
            raise FieldProblem(expected, found).at(str(self.path), len(self._frames) + 1)
        return frame

    def _message(self, frame: Frame) -> tuple[BatchLayout, memoryview]:
        """Layout and body of a record."""
        data = self._source.read(frame.offset, frame.end - frame.offset)
        if len(data) != frame.end - frame.offset:
            raise FieldProblem("a file that only grows", "it cut")
        start = frame.body - frame.offset
        layout, body = batch_layout(data[8:start]), memoryview(data)[start:]
        check_layout(layout, self._plan.nodes, self._plan.buffers)
        return layout, body

    @contextmanager
    def _placed(self, line: int) -> Iterator[None]:
        """Say of which record an error speaks."""
        try:
            yield
        except FieldProblem as problem:
            raise problem.at(str(self.path), line) from None
        except DAMAGE as error:
            raise self._damaged(error, line) from None

    def _damaged(self, error: Exception, line: int | None) -> TraceFormatError:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        return TraceFormatError(
            f"expected an Arrow record, found damage: {reason}", str(self.path), line
        )
