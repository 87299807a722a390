"""The kernels of steps on the device compile for a GPU: the interpreter lets pass what a compiler refuses.

Run: pytest tests/graphs/test_compiles.py
"""

from __future__ import annotations

import os
import subprocess
import sys


def test_kernels_compile_for_a_gpu() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.graphs.compile_for_gpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len([line for line in lines if "shared memory" in line]) == 23
    # Those of a chain wait before they read, but for positions, slots, cosines and sines.
    waits = [line for line in lines if "before it waits" in line]
    assert [line.split(":")[0] for line in waits if ": 0 reads" in line] == [
        "few_rows",
        "few_rows",
        "place_heads",
    ]
    assert len(waits) == 4
