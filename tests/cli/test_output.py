"""Where the output cannot go: one sentence at most, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from workbench.cli import main; main()"]
CALLS = (["explain", "bit-order"], ["check", "fixtures/example.jsonl"], ["convert", "--help"])


def call(arguments: list[str], redirect: str) -> subprocess.CompletedProcess[str]:
    line = f'"$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", line, "bash", *COMMAND, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_a_full_disk(arguments: list[str]) -> None:
    done = call(arguments, ">/dev/full")
    assert done.returncode == 2
    assert done.stderr == "ddtree: standard output: No space left on device\n"


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_a_closed_output(arguments: list[str]) -> None:
    done = call(arguments, ">&-")
    assert (done.returncode, done.stderr) == (0, "")
