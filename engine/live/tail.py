"""Steps of a growing file one after the other, each forgotten once it was handed out: Arrow and JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from engine.step import VerifyStep
from engine.trace import limits
from engine.trace.arrow_file import ArrowFile
from engine.trace.errors import FieldProblem, TraceFormatError
from engine.trace.ipc import END_OF_STREAM, RECORD_BATCH, Bytes, Frame, next_frame
from engine.trace.json_codec import loads

FIRST_READ = 1 << 16  # bytes of a JSON line


def has_schema(source: Bytes) -> bool:
    """Whether the first message is complete. Raises ``TraceFormatError`` for bytes that are no message."""
    try:
        return (
            next_frame(source, 0, limits.MAX_HEADER_BYTES + limits.MAX_METADATA_BYTES) is not None
        )
    except FieldProblem as problem:
        raise problem.at("", None) from None


class Tail(Protocol):
    """``take()`` until it returns None; again when the source has grown."""

    @property
    def offset(self) -> int:
        """Bytes that were read."""

    @property
    def ended(self) -> bool:
        """Whether the writer closed the file."""

    def take(self) -> VerifyStep | None:
        """The next step, None where no complete one is there. Raises ``TraceFormatError``, ``OSError``."""


def tail_of(path: Path, source: Bytes) -> Tail | None:
    """By the file's name; None where its beginning is not there yet. Raises ``TraceFormatError``."""
    if path.name.endswith(".jsonl"):
        return JsonlTail(path, source)
    return ArrowTail(path, source) if has_schema(source) else None


class JsonlTail:
    """JSON lines, each step one line; a file of them is never closed."""

    ended = False

    def __init__(self, path: Path, source: Bytes) -> None:
        self.offset, self._line = 0, 0
        self._path, self._source = path, source

    def take(self) -> VerifyStep | None:
        """The next line that is complete and not blank. Raises ``TraceFormatError``, ``OSError``."""
        while (data := self._next_line()) is not None:
            self.offset, self._line = self.offset + len(data), self._line + 1
            if data.strip():
                try:
                    return loads(data.decode().strip(), f"{self._path}:{self._line}")
                except UnicodeDecodeError:
                    where = (str(self._path), self._line)
                    raise TraceFormatError("expected UTF-8, found other bytes", *where) from None
        return None

    def _next_line(self) -> bytes | None:
        """With its newline."""
        size = FIRST_READ
        while True:
            data = self._source.read(self.offset, size)
            end = data.find(b"\n")
            if end >= 0:
                return data[: end + 1]
            if size > limits.MAX_LINE_BYTES:
                problem = f"expected at most {limits.MAX_LINE_BYTES} bytes a line, found more"
                raise TraceFormatError(problem, str(self._path), self._line + 1)
            if len(data) < size:
                return None
            size *= 4


class ArrowTail(ArrowFile):
    """``take()`` until it returns None; again when the source has grown. Memory does not grow with the file."""

    def __init__(self, path: Path, source: Bytes) -> None:
        self.taken = 0  # steps
        super().__init__(path, source)

    @property
    def offset(self) -> int:
        """Bytes that were read."""
        return self._end

    @property
    def ended(self) -> bool:
        """Whether the writer closed the file."""
        return self._closed

    def refresh(self) -> int:
        """Nothing: frames are found by :meth:`take`."""
        return self.taken

    def take(self) -> VerifyStep | None:
        """The next step, None where no complete one is there. Raises ``TraceFormatError``, ``OSError``."""
        if self._closed:
            return None
        frame = self._next(limits.MAX_METADATA_BYTES)
        if frame is None or not self._is_there(frame):
            return None
        self._end = frame.end
        self._closed = frame.header_type == END_OF_STREAM
        if self._closed:
            return None
        self.taken += 1
        with self._placed(self.taken):
            if frame.header_type != RECORD_BATCH:
                raise FieldProblem("a record batch", f"message type {frame.header_type}")
            return self._decoded(frame)

    def _is_there(self, frame: Frame) -> bool:
        """Fetch a whole record before it counts as read: where the network fails, it is read again."""
        length = frame.end - frame.offset
        return len(self._source.read(frame.offset, length)) == length

    def _next(self, metadata_limit: int) -> Frame | None:
        try:
            return next_frame(self._source, self._end, metadata_limit)
        except FieldProblem as problem:
            raise problem.at(str(self.path), self.taken + 1) from None
