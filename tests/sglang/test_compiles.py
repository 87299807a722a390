"""The tap's kernels compile for a GPU, and take what :mod:`engine.sglang.launch` gives the driver."""

from __future__ import annotations

import os
import subprocess
import sys

from engine.sglang.launch import SCRATCH


def test_kernels_compile_for_a_gpu() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.sglang.compile_for_gpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [line.split(": ") for line in done.stdout.splitlines()]
    assert [name for name, _ in found] == ["gather_arrays", "top2_rows", "top2_rows"]
    own = {"gather_arrays": ["64"], "top2_rows": ["64", "64", "32", "32"]}
    for name, sizes in found:
        known, more = own[name], sizes.split()[len(own[name]) :]
        assert sizes.split()[: len(known)] == known
        assert len(more) <= SCRATCH
        assert set(more) <= {"64"}
