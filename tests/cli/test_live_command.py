"""``ddtree live``: what it prints once, line by line, as JSON, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.factories import ints
from tests.live.recordings import PREDICT, Ranks
from workbench.cli import app

WIDTH = ("inputs.qo_indptr", ints(0, 4, 8, 12))


def live(*words: str):
    return CliRunner().invoke(app, ["live", *words])


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    made = Ranks(tmp_path, 2)
    for number in range(70):  # more than one look reads
        made.write(number)
    return made


def test_once_says_what_is_there(ranks: Ranks) -> None:
    ranks.close()
    done = live(str(ranks.folder), "--once")
    assert done.exit_code == 0, done.output
    assert f"{ranks.folder}: 140 steps, nothing wrong" in done.stdout
    assert "ranks 0-1 agree in 70 steps, the newest 69" in done.stdout
    assert done.stdout.count("■") == 2


def test_once_ends_as_check_does(ranks: Ranks, tmp_path: Path) -> None:
    ranks.write(70, rank1=WIDTH)
    ranks.write(71, rank1=PREDICT)
    done = live(str(ranks.folder), "--once")
    assert done.exit_code == 1, done.output
    assert "I1 row-extents" in done.stdout
    assert "rank 0 agrees, rank 1 differs at step" in done.stdout
    (tmp_path / "empty").mkdir()
    assert live(str(tmp_path / "empty"), "--once").exit_code == 2
    done = live(str(tmp_path / "nowhere"), "--once")
    assert done.exit_code == 2
    assert "there is no such directory" in done.stdout
    done = live("nosuch://host/x", "--once")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_json_is_one_object_an_update(ranks: Ranks) -> None:
    ranks.write(70, rank1=PREDICT)
    done = live(str(ranks.folder), "--once", "--json")
    assert done.exit_code == 1
    updates = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(updates) >= 2
    assert updates[-1]["steps"] == 142
    assert updates[-1]["agreement"][0].endswith("rank 1 differs at step 70: predict, row 19")
    found = [f for update in updates for f in update["findings"] if f["check"] == "I19"]
    assert len(found) == 1


def test_it_follows_until_it_is_interrupted(tmp_path: Path) -> None:
    made = Ranks(tmp_path, 2)
    made.write(0)
    command = [sys.executable, "-c", "from workbench.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "live", str(tmp_path), "--every", "0.1"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline()]
        made.write(1, rank1=PREDICT)
        while "differs at step 1: predict, row 19" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 1
    finally:
        process.kill()
    assert any("rank0.ddtree.arrow appeared" in line for line in lines)
    assert any("fault: I19 ranks, step 1, rank 1: request r1-1" in line for line in lines)
    assert "2 causes in 4 steps" in rest
