"""``ddtree bench tap``: the tap itself, on a double that is kept busy, beside a pretended server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.server_bench.tap_table import lines
from engine.sglang.attach import attach
from tests.server.pretend import Behaviour, serve
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.serving import Server
from workbench.cli import app

LASTS = {0: 0.009, 1: 0.006, 2: 0.003}  # seconds of a step that is recorded, rests, stays away
QUICK = ("--concurrency", "1", "--seconds", "2", "--warm-up", "0.2", "--alternate", "4")


@contextmanager
def busy(folder: Path) -> Iterator[Server]:
    """A double with the tap on it that verifies without end; how long a step takes goes by its kind."""
    over = threading.Event()
    with double.installed() as hook_on:
        server = Server(folder, attach(folder, hook_on, {}))
        server.pauses = True

        def run() -> None:
            tap = server.tap
            while not over.is_set():
                turn = tap.control.alternate
                time.sleep(LASTS[tap.counts.seen // turn % 3] if turn else 0.003)
                server.run_eager(worked.verify_input(), worked.batch())

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield server
        finally:
            over.set()
            thread.join()
            assert server.tap.stop is not None
            server.tap.stop()


def tap(*words: str) -> Any:
    return CliRunner().invoke(app, ["bench", "tap", *words])


def test_each_kind_of_steps_is_timed_and_the_control_file_is_put_back(tmp_path: Path) -> None:
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    (trace / "control.json").write_text('{"every": 3, "fingerprints": true}')
    with busy(trace) as server, serve(Behaviour(delay=0.1)) as url:
        done = tap(url, "--trace", str(trace), *QUICK, "--out", str(out), "--note", "A try.")
        assert done.exit_code == 0, done.output
        assert server.tap.counts.errors == 0
    data = json.loads((out / "tap.json").read_text())
    assert "\n".join(lines(data)) == done.stdout.rstrip("\n")
    assert (out / "tap.md").read_text() == done.stdout
    (level,) = data["levels"]
    (rank,) = level["ranks"].values()
    assert list(level["ranks"]) == ["rank0"]
    assert level["accept_length"] == 3.5
    assert level["tokens"] % 14 == 0
    for kind, turn in (("recorded", 0), ("resting", 1), ("away", 2)):
        assert rank[kind]["steps"] > 10
        assert rank[kind]["us"] > 1e6 * LASTS[turn]
    assert rank["ratio"]["recorded"] > rank["ratio"]["resting"] > 1
    row = next(line for line in done.stdout.splitlines() if line.startswith("| 1 | rank0 |"))
    told = [f"{rank['ratio'][kind]:.3f}" for kind in ("resting", "recorded")]
    assert row.split(" | ")[6:8] == told
    assert json.loads((trace / "control.json").read_text()) == {"every": 3, "fingerprints": True}


def test_other_requests_at_once_than_steps_have_is_told(tmp_path: Path) -> None:
    """The double verifies one request a step, whatever is in flight."""
    words = ("--trace", str(tmp_path), *QUICK, "--concurrency", "2", "--json")
    with busy(tmp_path), serve(Behaviour(delay=0.1)) as url:
        done = tap(url, *words)
    assert done.exit_code == 2
    data = json.loads(done.stdout)
    assert [level["concurrency"] for level in data["levels"]] == [1]
    assert "expected steps of 2 requests of every kind, found none of recorded" in data["problem"]
    assert data["problem"] in done.stderr.replace("\n", " ")
    assert not (tmp_path / "control.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--trace", "nowhere"),
            "expected the folder that DDTREE_TRACE_DIR names, found 'nowhere'",
        ),
        (("--trace", "."), "expected a health file of a tap"),
    ],
)
def test_a_folder_without_a_tap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("engine.server_bench.control_file.WAIT", 0.2)
    with serve(Behaviour()) as url:
        done = tap(url, *words, *QUICK)
    assert done.exit_code == 2
    assert told in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_server_that_dies_leaves_the_control_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "control.json").write_text('{"record": false}')
    with busy(tmp_path), serve(Behaviour(dies_after=3)) as url:
        done = tap(url, "--trace", str(tmp_path), *QUICK)
    assert done.exit_code == 2
    assert "Remote end closed connection" in done.stderr
    assert json.loads((tmp_path / "control.json").read_text()) == {"record": False}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_from_outside_puts_the_control_file_back(tmp_path: Path, number: int) -> None:
    with busy(tmp_path), serve(Behaviour(delay=0.05)) as url:
        words = ["bench", "tap", url, "--trace", str(tmp_path), "--seconds", "60"]
        command = [sys.executable, "-c", "from workbench.cli import main; main()", *words]
        bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while not (tmp_path / "control.json").exists() and time.monotonic() < end:
            time.sleep(0.05)
        bench.send_signal(number)
        _, said = bench.communicate(timeout=30)
        assert bench.returncode == 130, said
        assert b"Traceback" not in said
        assert not (tmp_path / "control.json").exists()
