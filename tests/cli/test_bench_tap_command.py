"""``ddtree bench tap``: the tap itself, on a double that is kept busy, beside a pretended server."""

from __future__ import annotations

import json
import os
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

from engine.server_bench.control_file import ControlFile
from engine.server_bench.tap_pace import _paces
from engine.server_bench.tap_table import lines
from engine.sglang.attach import attach
from engine.sglang.tap import Tap
from tests.server.pretend import Behaviour, serve
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.serving import Server
from tests.signals import hears_interrupts
from workbench.cli import app

LASTS = {0: 0.009, 1: 0.006, 2: 0.003}  # seconds of a step that is recorded, rests, stays away
QUICK = ("--concurrency", "1", "--seconds", "2", "--warm-up", "0.2", "--alternate", "4")


@contextmanager
def busy(folder: Path, spec: Any = worked.verify_input) -> Iterator[Server]:
    """A double with the tap on it that verifies without end; how long a step takes goes by its kind."""
    over = threading.Event()
    with double.installed() as hook_on:
        server = Server(folder, attach(folder, hook_on, {}))
        server.pauses = True

        def run() -> None:
            tap, requests = server.tap, worked.batch().reqs
            while not over.is_set():
                turn = tap.control.alternate
                time.sleep(LASTS[tap.counts.seen // turn % 3] if turn else 0.003)
                batch = worked.batch()
                batch.reqs = requests
                server.run_eager(spec(), batch)

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_end_from_outside_puts_the_control_file_back(tmp_path: Path, number: int) -> None:
    with busy(tmp_path), serve(Behaviour(delay=0.05)) as url:
        words = ["bench", "tap", url, "--trace", str(tmp_path), "--seconds", "60"]
        command = [sys.executable, "-c", "from workbench.cli import main; main()", *words]
        bench = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=hears_interrupts
        )
        end = time.monotonic() + 60
        while not (tmp_path / "control.json").exists() and time.monotonic() < end:
            time.sleep(0.05)
        bench.send_signal(number)
        _, said = bench.communicate(timeout=30)
        assert bench.returncode == 130, said
        assert b"Traceback" not in said
        assert not (tmp_path / "control.json").exists()


def test_two_at_once_and_one_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "control.json").write_text('{"every": 2}')
    (tmp_path / "health.rank0.json").write_text(json.dumps({"control": {"alternate": 7}}))
    first, second = ControlFile(tmp_path), ControlFile(tmp_path)
    first.set(alternate=7)
    with pytest.raises(ValueError, match="expected nobody else to measure with this tap"):
        second.set(alternate=7)
    second.restore()
    assert json.loads((tmp_path / "control.json").read_text()) == {"every": 2, "alternate": 7}
    assert first._lock is not None
    os.close(first._lock)  # as the end of its process does
    second.set(alternate=7)
    second.restore()
    assert json.loads((tmp_path / "control.json").read_text()) == {"every": 2}
    third = ControlFile(tmp_path)
    third.set(alternate=7)
    assert third._lock is not None
    os.close(third._lock)
    (tmp_path / "control.json").write_text('{"every": 5}')  # somebody put it right in the meantime
    fourth = ControlFile(tmp_path)
    fourth.set(alternate=7)
    fourth.restore()
    assert json.loads((tmp_path / "control.json").read_text()) == {"every": 5}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["control.json", "health.rank0.json"]


def test_a_link_stays_one_and_permissions_stay(tmp_path: Path) -> None:
    folder, place = tmp_path / "trace", tmp_path / "settings.json"
    folder.mkdir()
    place.write_text('{"every": 2}')
    place.chmod(0o600)
    (folder / "control.json").symlink_to(place)
    (folder / "health.rank0.json").write_text(json.dumps({"control": {"alternate": 7}}))
    file = ControlFile(folder)
    file.set(alternate=7)
    assert json.loads(place.read_text())["alternate"] == 7
    file.restore()
    assert (folder / "control.json").is_symlink()
    assert place.stat().st_mode & 0o777 == 0o600
    assert json.loads(place.read_text()) == {"every": 2}


def test_ranks_that_do_not_follow_are_named_and_those_that_have_ended_are_left_out(
    tmp_path: Path,
) -> None:
    follows = {"control": {"alternate": 7}, "state": "recording"}
    late = {"control": {}, "state": "recording", "time": "2026-01-01T00:00:00Z"}
    ended = {"control": {}, "state": "ended with the server"}
    for number, health in enumerate((follows, ended)):
        (tmp_path / f"health.rank{number}.json").write_text(json.dumps(health))
    file = ControlFile(tmp_path, wait=0.3)
    file.set(alternate=7)
    (tmp_path / "health.rank2.json").write_text(json.dumps(late))
    told = r"health.rank2.json \(recording, 2026-01-01T00:00:00Z\)$"
    with pytest.raises(ValueError, match=told):
        file.set(alternate=7)
    file.restore()
    for number in (0, 2):
        (tmp_path / f"health.rank{number}.json").unlink()
    with pytest.raises(ValueError, match=r"found health.rank1.json \(ended with the server\)"):
        ControlFile(tmp_path, wait=0.1).set(alternate=7)


GOOD = {kind: {"us": 3.0, "mean_us": 3.0, "steps": 3} for kind in ("recorded", "resting", "away")}
RATIOS = {name: {"recorded": 1.0, "resting": 1.0} for name in ("ratio", "mean_ratio")}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (None, "step_us of 1 requests: expected an object, found NoneType"),
        ([1], "expected an object, found NoneType"),
        ({"1": None}, "expected an object, found NoneType"),
        ({"1": GOOD}, "ratio.recorded: expected a number above 0, found None"),
        ({"1": {**GOOD, **RATIOS, "away": 3}}, "away.us: expected a number above 0, found None"),
        ({"1": {**GOOD, **RATIOS, "ratio": {"recorded": "1"}}}, "ratio.recorded: .* found '1'"),
        ({"1": {**GOOD, **RATIOS, "ratio": {"recorded": float("nan")}}}, "found nan"),
        ({"1": {**GOOD, **RATIOS, "ratio": {"recorded": True}}}, "found True"),
    ],
)
def test_health_files_that_are_not_as_they_should_be(tmp_path: Path, told: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _paces(tmp_path / "health.rank0.json", told, 1)
    good = {"1": {**GOOD, **RATIOS}}
    assert _paces(tmp_path, good, 1) == good["1"]


def test_a_tap_that_records_nothing_costs_nothing_that_could_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tap, "laid_of", lambda self, spec_info: None)  # before the first step
    with busy(tmp_path), serve(Behaviour(delay=0.1)) as url:
        done = tap(url, "--trace", str(tmp_path), *QUICK)
    assert done.exit_code == 2
    assert "expected steps to be recorded, found 0 written" in done.stderr
    assert "unmatched" in done.stderr


def test_what_cannot_be_written_is_told_before_it_is_measured(tmp_path: Path) -> None:
    (tmp_path / "tap.json").mkdir()
    behaviour = Behaviour()
    with serve(behaviour) as url:
        done = tap(url, "--trace", str(tmp_path), "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "tap.json" in done.stderr
    assert not behaviour.asked
    assert not (tmp_path / "tap.md").exists()
