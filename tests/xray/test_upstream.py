"""The two findings about SGLang's own kernels: the snapshots and the write-ups beside them say what really happens."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from engine.layout import MaskKind
from engine.trace import open_trace
from engine.xray.kernels import Kernel
from engine.xray.report import examine
from engine.xray.sglang_kernel import load_sglang
from fixtures.xray_cases import CASES, FOLDER
from tests.sglang_wheels import sglang_folder
from tests.xray.test_measure import pytestmark as pytestmark

MODULE = "sglang.kernels.ops.attention.extend_attention"


def measured(name: str, number: int, kernel: Kernel = Kernel.SGLANG) -> dict:
    step = open_trace(FOLDER / f"{name}.ddtree.zip").step(number)
    found = examine(step, kernel, sglang_path=str(sglang_folder()))
    return found.report["requests"][0] | {"cells": found.cells[MaskKind.MEASURED, 0]}


def test_the_snapshots_are_what_the_command_writes() -> None:
    for name, steps in CASES.items():
        trace = open_trace(FOLDER / f"{name}.ddtree.zip")
        assert [trace.step(i) for i in range(len(trace))] == steps


def test_the_unified_kernel_reads_windowed_masks_with_the_stride_of_the_window() -> None:
    """Row r reads cells 9 r … 9 r + 8 of a buffer with rows of 16: what the formula of the kernel's source gives."""
    step = open_trace(FOLDER / "unified-sliding-window.ddtree.zip").step(0)
    buffer = step.inputs.custom_mask
    expected = np.zeros((6, 16), np.int8)
    for row in range(6):
        for entry in range(9):  # the last 3 prefix columns, then 6 nodes
            expected[row, 7 + entry] = buffer[9 * row + entry] and 3 + row - entry <= 3
    found = measured("unified-sliding-window", 0)
    assert found["fault"] == "kernel"
    assert np.array_equal(found["cells"], expected)
    assert found["empty"] == [3, 5]


@pytest.mark.parametrize("number", [1, 2])
def test_it_takes_a_long_prefix_and_the_unified_kernel(number: int) -> None:
    assert measured("unified-sliding-window", number)["fault"] == "clean"


def test_the_engines_kernel_is_told_where_the_window_begins() -> None:
    assert measured("unified-sliding-window", 0, Kernel.ENGINE)["fault"] == "clean"


@pytest.mark.parametrize("kernel", [Kernel.SGLANG, Kernel.ENGINE])
def test_keys_beyond_the_query_tile_are_dropped(kernel: Kernel) -> None:
    found = measured("keys-beyond-query-tile", 0, kernel)
    assert found["fault"] == "kernel"
    assert found["pairs"][2]["cells"] == 1
    assert found["pairs"][2]["first"] == {"row": 1, "column": 132}
    assert measured("keys-beyond-query-tile", 1, kernel)["fault"] == "clean"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_the_code_of_a_write_up_prints_what_it_says(path: Path, monkeypatch) -> None:
    kernels, text = load_sglang(str(sglang_folder())), path.read_text(encoding="utf-8")
    module = types.ModuleType(MODULE)
    vars(module).update(vars(kernels))
    parts = MODULE.split(".")
    for count in range(1, len(parts)):
        name = ".".join(parts[:count])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, MODULE, module)
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code[1], str(path), "exec"), {})
    assert said.getvalue().strip() in text
