"""A tap that records in one server's turns alone: who is told, who is waited for, and what is left behind."""

from __future__ import annotations

import json
import shutil
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

from engine.server_bench.recording import Recordings, folders_of
from engine.sglang.attach import attach
from tests.server.pretend import Behaviour, serve
from tests.sglang import server_double as double
from tests.sglang.serving import Server
from tests.signals import hears_interrupts
from workbench.cli import app


@contextmanager
def rank(folder: Path, name: str = "health.rank0.json", late: float = 0.0) -> Iterator[list[Any]]:
    """A tap's side of it: the health file follows the control file. Yields what it was told, in order."""
    told: list[Any] = []
    over = threading.Event()

    def look() -> None:
        try:
            record = json.loads((folder / "control.json").read_text())["record"]
        except (OSError, ValueError):
            record = True
        if not told or told[-1] != record:
            time.sleep(late)
            told.append(record)
        beside = folder / f"{name}.new"
        beside.write_text(json.dumps({"control": {"record": record}}))
        beside.replace(folder / name)

    def run() -> None:
        while not over.wait(0.02):
            look()

    look()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


def test_only_the_named_one_records_and_everything_is_as_before(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
    (other / "control.json").write_text('{"record": true, "every": 3}')
    with rank(mine) as told, rank(other, late=0.3) as late:
        recordings = Recordings({"recording": mine, "second": other})
        for name in ("armed", "recording", "second", "second"):
            recordings.turn(name)
            found = [json.loads((f / "health.rank0.json").read_text()) for f in (mine, other)]
            records = [health["control"]["record"] for health in found]
            assert records == [name == "recording", name == "second"]
            assert json.loads((other / "control.json").read_text())["every"] == 3
        recordings.restore()
    assert told[:3] == [True, False, True]
    assert late[:3] == [True, False, True]
    assert not (mine / "control.json").exists()
    assert (other / "control.json").read_text() == '{"record": true, "every": 3}'


def test_every_rank_is_waited_for(tmp_path: Path) -> None:
    with rank(tmp_path):
        (tmp_path / "health.dp1-rank1.json").write_text('{"control": {"record": true}}')
        with pytest.raises(
            ValueError, match=r"expected every rank to follow \(record false\) within 0\.3 s"
        ):
            Recordings({"a": tmp_path}, wait=0.3).turn("b")


def test_a_folder_without_a_tap_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a health file of a tap"):
        Recordings({"a": tmp_path}, wait=0.2).turn("a")
    assert not (tmp_path / "control.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a"], "expected NAME=FOLDER, found 'a'"),
        (["a="], "expected NAME=FOLDER, found 'a='"),
        (["b=."], r"expected the name of a server \(a, c\), found 'b'"),
        (["a=nowhere"], "expected the folder that DDTREE_TRACE_DIR names, found 'nowhere'"),
        (["a=.", "a=.."], "expected each name once, found 'a' twice"),
    ],
)
def test_words_that_name_no_server_or_folder(words: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=f"record: {told}"):
        folders_of(words, ["a", "c"])


def test_a_folder_that_is_spelled_in_two_ways_is_one(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    words = [f"a={tmp_path}", f"b={tmp_path / 'x' / '..'}"]
    with rank(tmp_path):
        recordings = Recordings(folders_of(words, ["a", "b", "c"]))
        for name in ("c", "a", "b"):
            recordings.turn(name)
            found = json.loads((tmp_path / "health.rank0.json").read_text())
            assert found["control"]["record"] is (name != "c")
        recordings.restore()
    assert not (tmp_path / "control.json").exists()


def test_a_name_with_two_folders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="record: expected each name once, found 'a' twice"):
        folders_of([f"a={tmp_path}", "a=."], ["a"])


@pytest.mark.parametrize("content", [b"[1]", b"null", b"nope", b"\xff", b"[" * 100_000])
def test_a_control_file_that_is_none_is_told_and_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "control.json").write_bytes(content)
    (tmp_path / "health.rank0.json").write_text('{"control": {"record": true}}')
    recordings = Recordings({"a": tmp_path}, wait=0.2)
    with pytest.raises(ValueError, match=r"control\.json: expected a JSON object"):
        recordings.turn("a")
    recordings.restore()
    assert (tmp_path / "control.json").read_bytes() == content


def test_a_folder_that_is_gone_keeps_no_other_from_being_restored(tmp_path: Path) -> None:
    gone, other = tmp_path / "gone", tmp_path / "other"
    for folder in (gone, other):
        folder.mkdir()
        (folder / "control.json").write_text('{"every": 3}')
        (folder / "health.rank0.json").write_text('{"control": {"record": false}}')
    recordings = Recordings({"a": gone, "b": other}, wait=0.2)
    recordings.turn("c")
    shutil.rmtree(gone)
    with pytest.raises(FileNotFoundError):
        recordings.restore()
    assert (other / "control.json").read_text() == '{"every": 3}'


def test_the_tap_itself_follows(tmp_path: Path) -> None:
    with double.installed() as hook_on:
        server = Server(tmp_path, attach(tmp_path, hook_on, {}))
        try:
            recordings = Recordings({"recording": tmp_path})
            for name in ("armed", "recording"):
                recordings.turn(name)
                assert server.tap.control.record is (name == "recording")
            recordings.restore()
        finally:
            assert server.tap.stop is not None
            server.tap.stop()


def test_in_a_bench_one_server_records_in_every_other_turn(tmp_path: Path) -> None:
    behaviour = Behaviour()
    with rank(tmp_path) as told, serve(behaviour) as url:
        words = ("--rounds", "2", "--warm-up", "0", "--requests", "1", "--concurrency", "1")
        done = CliRunner().invoke(
            app,
            [
                "bench",
                "servers",
                f"armed={url}",
                f"recording={url}",
                *words,
                "--json",
                "--record",
                f"recording={tmp_path}",
            ],
        )
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rounds"]
        time.sleep(0.2)
    assert told[0] is True
    assert told[1:4] == [False, True, False]  # first round, second one in the other order
    assert not (tmp_path / "control.json").exists()


def test_a_tap_that_no_longer_follows_leaves_what_was_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []

    def turn(self: Recordings, name: str) -> None:
        turns.append(name)
        if len(turns) == 4:
            raise ValueError("expected every rank recording")

    monkeypatch.setattr(Recordings, "turn", turn)
    with serve(Behaviour()) as url:
        words = ("--rounds", "2", "--warm-up", "0", "--requests", "1", "--concurrency", "1")
        named = (f"a={url}", f"b={url}", "--record", f"b={tmp_path}")
        done = CliRunner().invoke(app, ["bench", "servers", *named, *words, "--json"])
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    assert (found["incomplete"], len(found["rounds"])) == (True, 1)
    assert found["problem"] == "expected every rank recording"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_from_outside_puts_the_control_file_back(tmp_path: Path, number: int) -> None:
    with rank(tmp_path) as told, serve(Behaviour(delay=0.2)) as url:
        words = ["bench", "servers", f"a={url}", f"b={url}", "--record", f"b={tmp_path}"]
        command = [sys.executable, "-c", "from workbench.cli import main; main()", *words]
        bench = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=hears_interrupts
        )
        end = time.monotonic() + 60
        while False not in told and time.monotonic() < end:
            time.sleep(0.05)
        assert (tmp_path / "control.json").exists()
        bench.send_signal(number)
        _, said = bench.communicate(timeout=30)
        assert bench.returncode == 130, said
        assert b"Traceback" not in said
        assert not (tmp_path / "control.json").exists()
