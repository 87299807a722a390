"""A disk that fills up while a recording is written, and inputs that are no files.

Run: pytest tests/trace/test_full_disk.py
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.trace import PromptRecord, TraceFormatError, TraceHeader, TraceWriter, open_trace
from engine.trace.archive import write_atomically
from engine.trace.snapshot import import_snapshot
from tests.trace.examples import example_step


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond ``size`` bytes: writes are cut short, then fail."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int]:
    """Bytes of a recording without steps, unfinished, and what one step adds."""
    path = tmp_path_factory.mktemp("sizes") / "a.ddtree.arrow"
    out = TraceWriter(path, TraceHeader())
    start = path.stat().st_size
    out.write(example_step())
    return start, path.stat().st_size - start


def _write_two(path: Path, room: int) -> None:
    with TraceWriter(path, TraceHeader()) as out:
        out.write(example_step())
        with largest_file(room):
            out.write(example_step())


@pytest.mark.parametrize("short", [1, 7, 8, 9, 500])
def test_a_step_that_did_not_fit_leaves_no_trace_of_itself(tmp_path, sizes, short) -> None:
    start, each = sizes
    path = tmp_path / "a.ddtree.arrow"
    with pytest.raises(OSError, match="File too large") as caught:
        _write_two(path, start + 2 * each - short)
    assert caught.value.filename == str(path)
    trace = open_trace(path)
    assert [step.step for step in trace] == [0]
    assert not trace.truncated


def test_writing_goes_on_once_there_is_room(tmp_path, sizes) -> None:
    start, each = sizes
    path = tmp_path / "a.ddtree.arrow"
    with TraceWriter(path, TraceHeader()) as out:
        with largest_file(start + each // 2), pytest.raises(OSError, match="File too large"):
            out.write(example_step())
        out.write(example_step())
    assert len(list(open_trace(path))) == out.written == 1


def test_a_full_disk_at_the_end_keeps_every_step(tmp_path, sizes) -> None:
    start, each = sizes
    path = tmp_path / "a.ddtree.arrow"
    out = TraceWriter(path, TraceHeader())
    out.write(example_step())
    with largest_file(start + each), pytest.raises(OSError, match="File too large"):
        out.close()
    out.close()
    assert len(list(open_trace(path))) == 1


@pytest.mark.parametrize(
    "header",
    [TraceHeader(), TraceHeader(prompts=(PromptRecord("r0", "\udcff", (), (), None),))],
)
def test_a_recording_that_cannot_begin_leaves_no_file(tmp_path, header) -> None:
    path = tmp_path / "a.ddtree.arrow"
    with largest_file(100), pytest.raises((OSError, ValueError)):
        TraceWriter(path, header)
    assert not path.exists()


def test_a_failed_snapshot_names_the_file_that_was_asked_for(tmp_path) -> None:
    path = tmp_path / "absent" / "a.zip"
    with pytest.raises(OSError, match="No such file") as caught:
        write_atomically(path, b"x")
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("read", [open_trace, import_snapshot])
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path, read) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", Path("/dev/zero")):
        with pytest.raises(TraceFormatError, match="found a pipe or a device"):
            read(path)


def test_a_directory_with_a_pipe_is_refused_at_once(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(TraceFormatError, match="found a pipe or a device"):
        open_trace(tmp_path)
