"""Servers that load while another is asked, and end: by themselves, by their patience, or because of a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.isolate import started
from engine.isolate.subject import Report
from tests.isolate.serving import (
    LONG,
    alive,
    announced,
    diary,
    matrix,
    measure,
    quiet,
    starts,
    subject,
    until,
)


def during(words: str, then: Callable[[], object]) -> Report:
    """Does this when the lab says so for the first time."""
    left = [then]

    def report(said: str, _share: float) -> None:
        if said.startswith(words) and left:
            left.pop()()

    return report


def test_one_that_dies_before_its_turn_is_told_then(tmp_path: Path) -> None:
    """Whether or not it was ready already."""

    def kill() -> None:
        until(
            lambda: (
                "16" in starts(tmp_path) and (tmp_path / "traces/b16-k1-graphs.log").stat().st_size
            )
        )
        pid = next(line["pid"] for line in diary(tmp_path) if line["name"] == "16")
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in alive(tmp_path))

    tried = matrix(budgets=(7, 16, 24), batches=(1, 2))
    on = subject(tmp_path, ahead=2)
    results = announced(tmp_path, tried, on, during("plain decoding", kill))
    said = (
        "b16-k1-graphs: ended by signal 9 while it loaded; b16-k1-graphs.log ends:\nloading weights"
    )
    errors = [result.error for result in results]
    assert errors == [None, None, said, f"not started again: {said}", None, None]
    assert sorted(starts(tmp_path)) == sorted(["plain", "7", "16", "24"])


@pytest.mark.parametrize("order", [(0, 1), (0, 2, 1)])
def test_one_that_dies_after_its_turn_began_is_started_again(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Before it is asked once more: with nothing between, and kept while another is asked."""
    tried = matrix(budgets=(7, 16), used_prompts=(0, 1))
    cells = [list(tried)[number] for number in order]
    served = measure(tmp_path, tried, subject(tmp_path, ahead=1), grace=LONG)
    served.expect(cells)

    def kill() -> None:
        pid = next(line["pid"] for line in diary(tmp_path) if line["name"] == "7")
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in alive(tmp_path))

    try:
        results = [served.measure(cell, quiet) for cell in cells[:-1]]
        kill()
        time.sleep(0.3)  # its guard has seen it
        results.append(served.measure(cells[-1], quiet))
    finally:
        served.close()
    assert [result.error for result in results] == [None] * len(cells)
    assert starts(tmp_path).count("7") == 2


def test_patience_counts_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is ready is taken however late its turn is."""
    monkeypatch.setattr(started, "PROBE", 0.1)
    on = replace(subject(tmp_path, ahead=2, slow=60.0, only="7"), patience=4.0)
    began: list[float] = []

    def hold() -> None:
        time.sleep(4.2)
        began.append(time.monotonic())

    report = during("plain decoding", hold)
    words: list[str] = []
    served = measure(tmp_path, matrix(budgets=(7, 16)), on)
    served.expect(list(served.matrix))
    slow, ready = served.matrix
    try:
        result = served.measure(slow, lambda said, share: (words.append(said), report(said, share)))
        assert time.monotonic() - began[0] < 3.0
        assert "not ready after " in (result.error or "")
        assert "not ready after 0 s" not in (result.error or "")
        loading = [said.split()[-2] for said in words if said.startswith("b7-k1-graphs: loading")]
        assert loading
        assert min(map(int, loading)) >= 4  # what it had loaded for before its turn
        assert served.measure(ready, quiet).error is None
    finally:
        served.close()


class Stop(Exception):
    """The reader pressed a button."""


@pytest.mark.parametrize("where", ["plain: loading", "plain decoding", "again"])
def test_a_stop_ends_those_that_load_too_at_the_same_time(tmp_path: Path, where: str) -> None:
    """Each has a child that does not heed SIGTERM, so that its end takes all the grace."""

    def children() -> int:
        return sum("child" in line for line in diary(tmp_path))

    stopped: list[float] = []

    def report(words: str, _share: float) -> None:
        if words.startswith(where):
            until(lambda: children() >= 3)
            stopped.append(time.monotonic())
            raise Stop

    tried = matrix(budgets=(7, 16, 24))
    served = measure(tmp_path, tried, subject(tmp_path, ahead=2, child=True, slow=0.3), grace=3.0)
    served.expect(list(tried))
    with pytest.raises(Stop):
        served.measure(next(iter(tried)), report)
    assert time.monotonic() - stopped[0] < 7.0  # one after another: 9
    assert alive(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_this_program_is_killed(tmp_path: Path, number: int) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.isolate.serving import *\n"
        "folder = Path(sys.argv[1]); told = subject(folder, ahead=1, hang='first', child=True)\n"
        "served = measure(folder, matrix(), told)\n"
        "served.expect(list(served.matrix))\n"
        "served.measure(next(iter(served.matrix)), quiet)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: sum("child" in line for line in diary(tmp_path)) == 2)
        os.kill(process.pid, number)
        process.wait()
    finally:
        process.kill()
    assert len(diary(tmp_path)) >= 4
    until(lambda: alive(tmp_path) == [])
