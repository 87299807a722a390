"""An experiment from its first cell to its last, stopped and gone on with; and what it will take."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment, LocalSubject, ServerSubject
from engine.isolate.lab import Done, Started, run_lab
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome
from engine.isolate.plan import duration, hardest, plan_of
from engine.isolate.store import Store
from tests.isolate.results import measured

MATRIX = Matrix((7, 16), (1, 4), (False,), (1, 2), used_prompts=(0,), max_new_tokens=10)
CELLS = list(MATRIX)


class Fake:
    """Measures nothing; knows what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Cell] = []
        self.expected: list[Cell] = []
        self.closed = 0

    def expect(self, cells: Sequence[Cell]) -> None:
        self.expected = list(cells)

    def measure(self, cell: Cell, report) -> Measured:
        self.asked.append(cell)
        report("half of it", 0.5)
        return measured(cell, Outcome.CLEAN)

    def close(self) -> None:
        self.closed += 1


def test_every_cell_once_in_order_and_on_disk_before_it_is_told(tmp_path: Path) -> None:
    store, fake = Store.create(tmp_path, Experiment(MATRIX)), Fake()
    told: list[Cell] = []
    for event in run_lab(store, lambda words, share: None, make=lambda e, t: fake):
        if isinstance(event, Started):
            assert (event.number, event.total) == (len(told), 8)
            assert (event.seconds_left is None) == (not told)
        else:
            told.append(event.measured.cell)
            assert Store.open(tmp_path).results.keys() == set(told)
    assert told == fake.asked == CELLS
    assert fake.closed == 1


def test_stopped_and_gone_on_with(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    store, fake = Store.create(tmp_path, Experiment(MATRIX)), Fake()

    def report(words: str, share: float) -> None:
        if len(fake.asked) == 3:
            raise Stop

    with pytest.raises(Stop):
        list(run_lab(store, report, make=lambda e, t: fake))
    assert fake.closed == 1
    again, rest = Store.open(tmp_path), Fake()
    events = list(run_lab(again, lambda words, share: None, make=lambda e, t: rest))
    assert rest.asked == rest.expected == CELLS[2:]
    assert [e.number for e in events if isinstance(e, Started)] == [2, 3, 4, 5, 6, 7]
    assert sum(isinstance(e, Done) for e in events) == 6
    assert list(run_lab(again, lambda words, share: None, make=lambda e, t: 1 / 0)) == []


def test_closing_the_events_closes_the_subject(tmp_path: Path) -> None:
    store, fake = Store.create(tmp_path, Experiment(MATRIX)), Fake()
    events = run_lab(store, lambda words, share: None, make=lambda e, t: fake)
    next(events)
    events.close()
    assert fake.closed == 1


def test_the_plan_of_a_local_experiment() -> None:
    experiment = Experiment(MATRIX, LocalSubject())
    plan = plan_of(experiment, {})
    assert (plan.cells, plan.left, plan.runs, plan.server_starts) == (8, 8, 16, 0)
    assert plan.tokens == 12 * 10 * 4  # 12 requests, plain and tree, twice
    assert plan.seconds is None
    assert (
        str(plan) == "8 cells, 16 runs, at most 480 tokens; how long is known after the first cell"
    )
    tried = plan_of(experiment, {}, (CELLS[0], 2.0))
    assert tried.seconds == 24.0
    assert str(tried).endswith("about 24 s (from a few tokens of b7-k1-eager-n1-p0)")


def test_the_plan_after_some_cells() -> None:
    results = {c: Measured(c, seconds=3.0 * c.batch) for c in CELLS[:2]}
    plan = plan_of(Experiment(MATRIX), results, (CELLS[0], 99.0))
    assert (plan.left, plan.seconds) == (6, 27.0)
    assert str(plan).startswith("6 left of 8 cells, 12 runs, at most 360 tokens; about 27 s")
    done = plan_of(Experiment(MATRIX), {c: Measured(c, seconds=1.0) for c in CELLS})
    assert str(done) == "0 left of 8 cells, 0 runs, at most 0 tokens; nothing is left"


def test_the_plan_of_a_server_counts_its_starts() -> None:
    matrix = Matrix((7, 16), (1, 4), (False, True), (1, 2), temperatures=(0.0, 0.5))
    experiment = Experiment(matrix, ServerSubject(("a",), ("b",), patience=600.0))
    plan = plan_of(experiment, {})
    assert plan.server_starts == 2 * 2 * 2 + 1
    assert "9 server starts" in str(plan)
    assert str(plan).endswith("a start is waited for 10 min")
    ahead = ServerSubject(("{port}",), ("{port}",), ahead=20)
    assert "9 server starts (up to 8 ahead)," in str(plan_of(Experiment(matrix, ahead), {}))


def test_the_hardest_cell_is_the_widest_of_few_requests() -> None:
    assert hardest(CELLS).budget == 16
    assert hardest(CELLS).batch == 1


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.1, "1 s"), (89, "89 s"), (95, "2 min"), (7500, "2 h 5 min")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_two_processes_do_not_measure_one_folder(tmp_path: Path) -> None:
    """What the second one meets, a port that is taken say, would stand there as results."""
    fake = Fake()

    def run(store: Store) -> Generator[Started | Done, None, None]:
        return run_lab(store, lambda words, share: None, make=lambda e, t: fake)

    first = run(Store.create(tmp_path, Experiment(MATRIX)))
    next(first)
    with pytest.raises(ValueError, match="is measured by another process now"):
        next(run(Store.open(tmp_path)))
    first.close()
    assert isinstance(next(run(Store.open(tmp_path))), Started)
    assert fake.asked == []
