"""Experiments whose results are made up: wrong where the step is wider than the block, as in the story."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment, LocalSubject
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Compared, Measured
from engine.isolate.store import Store
from engine.isolate.subject import Report

PLAIN = "The ocean is wide and deep,\nIt sings the ships to sleep."
GARBLED = "The ocean is abuma abuma poemowners"
HOSTILE = "**b** <img src=x onerror=alert(1)> :red[x] $\\frac12$ [l](javascript:alert(1)) ⟦\u202e`"
PARTED = 3  # token at which the garbled text leaves the plain one
SMALL = Matrix(
    prompts=("Write a poem", "Count to ten", "Name a fish"), used_prompts=(0,), max_new_tokens=12
)


def compared(*, text: str = PLAIN, at: int | None = None, **changes: object) -> Compared:
    facts = {"margin": 6.25, "near_tie": False} if at is not None else {}
    values = {"repeats": True, "accept_length": 2.5, **facts, **changes}
    prompt = str(values.pop("prompt", "Write a poem"))
    return Compared(prompt, text, PLAIN, tuple(range(12)), tuple(range(12)), at, **values)  # type: ignore[arg-type]


def story(cell: Cell, trace: str | None = None) -> Measured:
    """What a width of 8 makes of a cell."""
    wrong = cell.q_len != 8
    one = compared(text=GARBLED, at=PARTED, accept_length=1.4) if wrong else compared()
    told = {"findings": {"row-extents": 6}, "diagnoses": {"width-mismatch": 6}} if wrong else {}
    return Measured(
        cell,
        (one, *[compared()] * (cell.batch - 1)),
        seconds=2.0,
        tokens_per_s=20.0,
        plain_tokens_per_s=10.0,
        sentence="step 0: width 8 used for 17 rows" if wrong else None,
        trace=trace,
        **({"findings": {}, **told}),  # type: ignore[arg-type]
    )


def failed(cell: Cell, error: str = "RuntimeError: no room") -> Measured:
    return Measured(cell, seconds=0.1, error=error)


def made(
    folder: Path, results: Iterable[Measured] = (), matrix: Matrix = SMALL, **subject: object
) -> Store:
    """A folder of an experiment with some results."""
    store = Store.create(folder, Experiment(matrix, LocalSubject(**subject)))  # type: ignore[arg-type]
    for measured in results:
        store.add(measured)
    return store


@dataclass
class FakeMeasure:
    """Takes no model; waits between cells until it is let on."""

    make: Callable[[Cell], Measured] = story
    let_on: threading.Event = field(default_factory=threading.Event)
    closed: int = 0
    cells: list[Cell] = field(default_factory=list)

    def expect(self, cells: Sequence[Cell]) -> None:
        pass

    def measure(self, cell: Cell, report: Report) -> Measured:
        self.cells.append(cell)
        report("run 1 of 2, tree: 4 tokens", 0.5)
        while not self.let_on.wait(0.02):
            report("run 1 of 2, tree: 5 tokens", 0.5)
        return self.make(cell)

    def seconds_of(self, cell: Cell, report: Report) -> float:
        report("trying", 0.5)
        return 4.0

    def close(self) -> None:
        self.closed += 1


def until(true: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert true()
