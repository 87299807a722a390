"""JsonlFile: the steps of one ``.jsonl`` file; lines are found at once and parsed when asked
for.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from engine.step import VerifyStep
from engine.trace import limits
from engine.trace.errors import TraceFormatError
from engine.trace.header import TraceHeader, header_from_text
from engine.trace.json_codec import loads


def header_path(path: Path) -> Path:
    """Where the header of a JSON-lines file lies: ``story.jsonl`` has ``story.header.json`` beside
    it.
    """
    return path.with_name(path.name.removesuffix(".jsonl") + ".header.json")


class JsonlFile:
    """Steps of one JSON-lines file. Blank lines are passed over; a last line without its newline
    counts.
    """

    truncated = False

    def __init__(self, path: Path):
        self.path = path
        self._lines: list[tuple[int, int, int]] = []  # (line number, offset, bytes)
        self._next = (1, 0)  # line number and offset to look at next
        self.header = _read_header(header_path(path))
        self.refresh()

    def __len__(self) -> int:
        return len(self._lines)

    def refresh(self) -> int:
        """Look for lines that were appended; returns how many steps there are now."""
        number, offset = self._next
        while self._lines and self._lines[-1][1] >= offset:
            self._lines.pop()  # it had no newline yet and may have grown
        with open(self.path, "rb") as file:
            file.seek(offset)
            while line := file.readline(limits.MAX_LINE_BYTES + 1):
                self._add(number, offset, line)
                number, offset = number + 1, offset + len(line)
                if line.endswith(b"\n"):
                    self._next = number, offset
        return len(self._lines)

    def _add(self, number: int, offset: int, line: bytes) -> None:
        problem = ""
        if len(line) > limits.MAX_LINE_BYTES:
            problem = f"expected at most {limits.MAX_LINE_BYTES} bytes a line, found more"
        elif len(self._lines) >= limits.MAX_STEPS:
            problem = f"expected at most {limits.MAX_STEPS} steps, found more"
        if problem:
            raise TraceFormatError(problem, str(self.path), number)
        if line.strip():
            self._lines.append((number, offset, len(line)))

    def step(self, position: int) -> VerifyStep:
        """Parse one step. Raises ``TraceFormatError``."""
        number, offset, length = self._lines[position]
        with open(self.path, "rb") as file:
            file.seek(offset)
            data = file.read(length)
        try:
            return loads(data.decode().strip(), f"{self.path}:{number}")
        except UnicodeDecodeError as error:
            message = f"expected UTF-8, found byte 0x{data[error.start]:02x} at {error.start}"
            raise TraceFormatError(message, str(self.path), number) from None

    def key(self, position: int) -> tuple[int, int]:
        """Number and rank of a step. Raises ``TraceFormatError``."""
        step = self.step(position)
        return step.step, step.rank

    def digest(self) -> str:
        """SHA-256 of the file, in hex."""
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _read_header(path: Path) -> TraceHeader:
    if not path.is_file():
        return TraceHeader()
    with open(path, "rb") as file:
        data = file.read(limits.MAX_HEADER_BYTES + 1)
    try:
        return header_from_text(data.decode(), str(path))
    except UnicodeDecodeError:
        raise TraceFormatError("expected UTF-8, found other bytes", str(path)) from None
