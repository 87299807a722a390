"""Run an experiment cell by cell, as events; the caller may stop at any time and go on later."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment
from engine.isolate.measured import Measured
from engine.isolate.store import Store
from engine.isolate.subject import Measure, Report, measure_for

MakeMeasure = Callable[[Experiment, Path], Measure]


@dataclass(frozen=True)
class Started:
    """A cell is measured now. ``number`` counts from 0, of ``total`` that are known with those to come."""

    cell: Cell
    number: int
    total: int
    seconds_left: float | None  # from the cells measured so far; None before the first


@dataclass(frozen=True)
class Done:
    """A cell was measured, and its line is on disk."""

    measured: Measured


Event = Started | Done


def run_lab(
    store: Store,
    report: Report,
    *,
    make: MakeMeasure = measure_for,
    cells: Sequence[Cell] | None = None,
) -> Generator[Event, None, None]:
    """Measure what is left, or of that only ``cells``.

    What ``report`` raises ends it; every cell that was measured stays. Raises ``ValueError`` while another process
    measures the same folder.
    """
    left = store.left if cells is None else [cell for cell in cells if cell not in store.results]
    total = len(left) + len(store.results)
    if not left:
        return
    began, measured = time.monotonic(), 0
    with store.measuring(), closing(make(store.experiment, store.traces)) as subject:
        subject.expect(left)
        for number, cell in enumerate(left):
            each = (time.monotonic() - began) / measured if measured else None
            rest = each * (len(left) - number) if each is not None else None
            yield Started(cell, total - len(left) + number, total, rest)
            result = subject.measure(cell, report)
            store.add(result)
            measured += 1
            yield Done(result)
