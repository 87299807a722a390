"""A file of lines that grows: each is whole and on disk before the next begins; one that was cut off does not count."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 256 << 20


def text_of(path: Path) -> str:
    """The whole file. Raises ``ValueError`` for one that is too large, not UTF-8, or no file that ends."""
    return _decoded(path, _bytes_of(path))


def whole_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Place (file and line) and text of each line that is whole; none where there is no file."""
    if not path.exists():
        return
    data = _bytes_of(path)
    whole = _decoded(path, data[: data.rfind(b"\n") + 1])  # a cut may lie within a character
    for number, line in enumerate(whole.split("\n"), 1):
        if line.strip():
            yield f"{path}:{number}", line


def append_line(path: Path, line: str) -> None:
    """Add one line, without its newline. What was cut off before it goes."""
    with open(path, "ab+") as file:
        file.truncate(_whole_bytes(path))
        file.write((line + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def _bytes_of(path: Path) -> bytes:
    if not path.is_file():  # a pipe or a device is waited for without end
        raise ValueError(f"{path}: expected a file, found something else")
    if (size := path.stat().st_size) > MAX_BYTES:
        raise ValueError(f"{path}: expected at most {MAX_BYTES} bytes, found {size}")
    return path.read_bytes()


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8, found {error.reason}") from None


def _whole_bytes(path: Path) -> int:
    """Bytes up to the last newline."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(max(0, size - 1))
        if not size or file.read(1) == b"\n":
            return size
        file.seek(0)
        return file.read().rfind(b"\n") + 1
