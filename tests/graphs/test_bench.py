"""The committed figures of a GPU: the table is the JSON's, and holds what was asked of it.

Run: pytest tests/graphs/test_bench.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from engine.graphs.bench.attention import SHAPES, Shape
from engine.graphs.bench.table import lines
from workbench.cli import app

FOLDER = Path(__file__).parents[2] / "fixtures" / "bench"


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "gpu.json").read_text())
    return found


def test_the_table_is_the_json(figures: dict[str, Any]) -> None:
    assert "\n".join(lines(figures)) + "\n" == (FOLDER / "gpu.md").read_text()


def test_figures_fit_together(figures: dict[str, Any]) -> None:
    """Ratios follow from times, floors from shapes and rates; nobody is faster than the floor."""
    rates = figures["copy_bytes_per_second"], figures["matrix_operations_per_second"]
    assert len(figures["attention"]) == len(SHAPES)
    for shape, row in zip(SHAPES, figures["attention"], strict=True):
        assert row["floor_us"] == pytest.approx(shape.floor(*rates))
        assert row["ratio"] == pytest.approx(row["sglang_us"] / row["ours_us"])
        assert row["floor_us"] < row["ours_us"] < row["sglang_us"]
        assert row["ours_error"] <= row["sglang_error"] * 1.01
    for row in figures["building"]:
        assert row["same_trees"] == row["batch"]
        assert row["ratio"] == pytest.approx(row["host_us"] / row["device_us"])
    plain = figures["steps"]["bfloat16"]["methods"]["plain, graphs"]
    for row in figures["steps"]["bfloat16"]["methods"].values():
        speed = row["tokens_per_step"] / row["step_us"] * 1e6
        assert row["tokens_per_second"] == pytest.approx(speed)
        assert row["ratio_to_plain"] == pytest.approx(speed / plain["tokens_per_second"], rel=1e-3)
    assert not figures["steps"]["float32"]["partings"]


def test_floors_by_hand() -> None:
    """One key and value of 2 heads of 4 numbers a token, 16 bits: 32 bytes; products: 4 a row, head, column, number."""
    shape = Shape(batch=3, prefix=10, rows=2, heads=4, kv_heads=2, dim=4)
    assert shape.cache_bytes == 3 * 10 * 32
    moved, products = 3 * 10 * 32 + 2 * 2 * (3 * 2 * 4 * 4), 4 * 3 * 2 * 4 * 12 * 4
    assert shape.floor(1e6, 1e12) == pytest.approx(moved)
    assert shape.floor(1e12, 1e6) == pytest.approx(products)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_so_in_a_sentence() -> None:
    done = CliRunner().invoke(app, ["bench", "gpu"])
    assert done.exit_code == 2
    assert done.output.startswith("device cuda: expected a GPU that torch can use, found none")
    assert len(done.output.splitlines()) == 1
