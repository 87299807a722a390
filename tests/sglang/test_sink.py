"""A part in JSON lines holds whole lines, however a write ends.

Run: pytest tests/sglang/test_sink.py
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from engine.sglang.sink import JsonLines
from engine.trace import open_trace
from engine.trace.header import TraceHeader
from tests.xray.steps import story


class Filling:
    """A file on a disk that takes ``room`` more bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self.room = file, room

    def write(self, data: memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self._file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("room", [0, 1, 300])
def test_a_full_disk_leaves_no_half_line(tmp_path: Path, room: int) -> None:
    path = tmp_path / "rank0.00000.jsonl"
    part = JsonLines(path, TraceHeader(created_by="test"))
    part.write(story(None))
    whole = path.read_bytes()
    part._file = Filling(part._file, room)
    with pytest.raises(OSError, match="No space left"):
        part.write(story(8))
    assert path.read_bytes() == whole
    part._file.room = 1 << 20  # there is room again
    part.write(story(8))
    part.close()
    trace = open_trace(path)
    assert [trace.step(i).inputs.max_extend_len for i in range(len(trace))] == [17, 8]
