"""What a terminal says of a pair that proves something: both sides, as they are for the prompt that is compared."""

from __future__ import annotations

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment
from engine.isolate.judge import judge
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome
from tests.isolate.results import WRONG, measured, request
from workbench.isolate_words import lines_of
from workbench.lab_words import pair_words

MATRIX = Matrix((7,), (1,), (False, True), (2,), ("a", "b"))


def said(matrix: Matrix, results: list[Measured]) -> list[str]:
    experiment = Experiment(matrix)
    verdict = judge(experiment, results)
    lines = lines_of(experiment, {r.cell: r for r in results}, verdict)
    at = lines.index("what proves it:")
    return [line.strip() for line in lines[at + 1 : at + 1 + len(verdict.proof)]]


def behind(cell: Cell) -> Measured:
    return Measured(cell, (request(), WRONG), 1.0)


def test_two_places_of_a_batch() -> None:
    """Both cells are wrong; for one prompt they differ all the same."""
    results = [behind(cell) for cell in MATRIX]
    line = "wrong at one place of a batch of 2, right at another"
    shared = "(budget 7, top-k 1, graphs off, prompt 1)"
    assert said(MATRIX, results)[0] == f"{line} {shared}"
    pair = judge(Experiment(MATRIX), results).proof[0]
    assert "prompt 1, at another place in the batch" in pair_words(pair)


def test_temperature_and_seed_are_named_where_they_are_not_0() -> None:
    matrix = Matrix((7,), (1,), (False, True), (1,), ("a",), (0,), (0.5,), (0, 3))
    found = [measured(c, Outcome.WRONG if c.graphs else Outcome.CLEAN) for c in matrix]
    alike = (
        "graphs on wrong, graphs off clean (budget 7, top-k 1, batch 1, prompt 0, temperature 0.5"
    )
    assert said(matrix, found) == [f"{alike})", f"{alike}, seed 3)"]
