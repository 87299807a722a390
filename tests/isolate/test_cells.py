"""Cells, matrices and the grid that they are shown in."""

from __future__ import annotations

import re
from itertools import pairwise, product

import pytest

from engine.isolate.cell import Cell, Factor
from engine.isolate.matrix import Matrix
from workbench.isolate_words import grid_of

CELL = Cell(16, 4, True, 2, 1, 0.5, 3)


def test_one_cell_in_words_and_as_a_file_name() -> None:
    assert str(CELL) == (
        "budget 16, top-k 4, graphs on, batch 2, prompt 1, temperature 0.5, seed 3"
    )
    assert CELL.key == "b16-k4-graphs-n2-p1-t0.5-s3"
    assert Cell(7, None, False, 1, 0, 0.0, 0).key == "b7-kall-eager-n1-p0"
    assert CELL.q_len == 17


def test_every_factor_is_a_field_that_can_be_changed_alone() -> None:
    other = {"budget": 7, "topk": None, "graphs": False, "batch": 1, "prompt": 0, "seed": 0}
    for factor in Factor:
        changed = CELL.with_value(factor, other.get(factor.value, 0.0))
        assert CELL.differs_in(changed) == (factor,)
        assert changed.differs_in(CELL) == (factor,)
    assert CELL.differs_in(CELL) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": 0}, "budget: expected at least 1, found 0"),
        ({"topk": 0}, "topk: expected at least 1, or none, found 0"),
        ({"batch": 0}, "batch: expected at least 1, found 0"),
        ({"temperature": -1.0}, "temperature: expected 0 … 100, found -1.0"),
        ({"temperature": float("nan")}, "temperature: expected 0 … 100, found nan"),
    ],
)
def test_a_cell_that_no_engine_has(changes: dict, words: str) -> None:
    values = {name: getattr(CELL, name) for name in Cell.__dataclass_fields__}
    with pytest.raises(ValueError, match=re.escape(words)):
        Cell(**{**values, **changes})


def test_a_matrix_holds_every_combination_once() -> None:
    matrix = Matrix((7, 16), (1, None), (False, True), (1, 3), ("a", "b"), (0, 1), (0.0,), (0, 5))
    cells = list(matrix)
    assert len(cells) == len(matrix) == len(set(cells)) == 64
    assert {(c.budget, c.topk, c.graphs) for c in cells} == set(
        product((7, 16), (1, None), (False, True))
    )
    starts = [(c.budget, c.topk, c.graphs) for c in cells]
    assert len([1 for a, b in pairwise(starts) if a != b]) == 7


def test_the_prompts_of_a_batch_go_round() -> None:
    matrix = Matrix(prompts=("a", "b", "c"), used_prompts=(0, 2), batches=(1, 4))
    assert matrix.batch_of(Cell(7, 1, False, 4, 2, 0.0, 0)) == ("c", "a", "b", "c")
    assert matrix.batch_of(Cell(7, 1, False, 1, 0, 0.0, 0)) == ("a",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budgets": ()}, "budgets: expected at least one value, found none"),
        ({"topks": (4, 4)}, "topks: expected each value once, found [4, 4]"),
        ({"prompts": ("a", " ")}, "prompts: expected at least one, none of them blank"),
        ({"used_prompts": (3,)}, "used_prompts: expected 0 … 1, found 3"),
        ({"max_new_tokens": 0}, "max_new_tokens: expected at least 1, found 0"),
        ({"budgets": tuple(range(1, 5000))}, "matrix: expected at most 4096 cells, found 79984"),
        ({"batches": (0,)}, "batch: expected at least 1, found 0"),
    ],
)
def test_a_matrix_that_is_none(changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Matrix(**changes)


def test_the_grid_names_what_varies_and_holds_every_cell_once() -> None:
    matrix = Matrix((7, 16), (1,), (False, True), (1, 2), ("a", "b", "c"), (0,))
    grid = grid_of(list(matrix))
    assert grid.rows == ("budget 7", "budget 16")
    assert set(grid.columns) == {
        "batch 1, graphs off",
        "batch 1, graphs on",
        "batch 2, graphs off",
        "batch 2, graphs on",
    }
    assert sorted(cell for row in grid.cells for cell in row) == sorted(matrix)
    one = grid_of(list(Matrix((7,), (1,), (True,), (1,), ("a",), (0,))))
    assert (one.rows, one.columns) == (("budget 7",), ("graphs on",))


def test_a_batch_without_end_is_refused() -> None:
    """An experiment that was sent could hold one, and each of its requests would be judged."""
    with pytest.raises(ValueError, match="batch: expected at most 1024, found 1000000000"):
        Matrix(batches=(1, 10**9))
