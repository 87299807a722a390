"""A matrix that grows. Run: pytest tests/isolate/test_extend.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.isolate.experiment import Experiment
from engine.isolate.extend import extend, extended
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.store import Store

MATRIX = Matrix(budgets=(7,), topks=(1,), batches=(1,), used_prompts=(0,), max_new_tokens=4)
FIRST = next(iter(MATRIX))


def test_the_smallest_matrix_that_holds_the_cells_too() -> None:
    more = extended(MATRIX, [replace(FIRST, budget=6), replace(FIRST, topk=None)])
    assert (more.budgets, more.topks, more.graphs) == ((7, 6), (1, None), (False, True))
    assert set(MATRIX) < set(more)
    assert extended(MATRIX, [FIRST]) == MATRIX


def test_results_stay_and_the_rest_is_left(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "lab", Experiment(MATRIX))
    store.add(Measured(FIRST))
    grown = extend(store, [replace(FIRST, budget=6)])
    assert Store.open(store.folder).experiment == grown.experiment
    assert grown.results == {FIRST: Measured(FIRST)}
    assert len(grown.left) == 3
    assert extend(grown, [FIRST]) is grown


def test_a_matrix_that_would_be_too_large_is_refused(tmp_path: Path) -> None:
    store = Store.create(
        tmp_path / "lab", Experiment(Matrix(used_prompts=(0,), seeds=tuple(range(200))))
    )
    cells = [replace(FIRST, budget=n) for n in range(1, 50)]
    with pytest.raises(ValueError, match="expected at most 4096 cells"):
        extend(store, cells)
    assert Store.open(store.folder).experiment == store.experiment
