"""``ddtree bench checks``: figures of recordings, and of synthetic steps read and checked in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fixtures import TRACES
from workbench.cli import app
from workbench.cli.bench import _peak_rss

RUNNER = CliRunner()


def run(*arguments: str) -> Any:
    return RUNNER.invoke(app, ["bench", "checks", *arguments])


def test_synthetic_steps() -> None:
    result = run("--synthetic", "--steps", "50", "--prefix", "64", "--json")
    assert result.exit_code == 0
    (figures,) = json.loads(result.stdout)["runs"]
    assert (figures["steps"], figures["findings"], figures["checks"]) == (50, 0, 20)
    assert (figures["layout"], figures["prefix_len"], figures["batch"]) == ("full", 64, 4)
    assert figures["steps_per_second"] * figures["seconds"] > 49
    assert figures["cpu_seconds"] > 0
    assert 0 < figures["peak_rss_mib"] < 1024


def test_a_row_for_each_layout_and_prefix() -> None:
    shapes = ["--layout", "full", "--layout", "qlen", "--prefix", "16", "--prefix", "32"]
    result = run("--synthetic", "--steps", "3", "--batch", "2", "--budget", "4", *shapes)
    assert result.exit_code == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.stdout.splitlines()]
    assert [row[:5] for row in rows if row[0] in ("full", "qlen")] == [
        [layout, "2", "4", prefix, "3"] for layout in ("full", "qlen") for prefix in ("16", "32")
    ]
    assert all(row[-1] == "0" for row in rows if row[0] in ("full", "qlen"))


def test_a_path_beside_it_is_refused(tmp_path: Path) -> None:
    result = run("--synthetic", str(tmp_path))
    assert result.exit_code == 2
    assert "--synthetic makes its own recording" in result.output


def test_what_cannot_be_read_ends_the_process(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.ddtree.arrow")
    code = "import sys; from workbench.cli.bench import timed_check; timed_check(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, missing], capture_output=True, text=True)
    assert done.returncode != 0
    assert "none.ddtree.arrow" in done.stderr


def test_memory_is_this_process_own() -> None:
    assert 1 << 20 < _peak_rss() < 1 << 40


def test_bundled_recordings() -> None:
    result = run("--rounds", "1", "--json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert figures["recordings"] == len(list(TRACES.glob("*.ddtree.arrow")))
    assert figures["steps"] > 50
