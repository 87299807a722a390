"""What measures cells: the protocol that the local engine and a started server share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment, LocalSubject
from engine.isolate.measured import Measured

# Words and the share of the cell that is done. Raising ends the measurement; what was started is ended too.
Report = Callable[[str, float], None]


class Measure(Protocol):
    """Measures one cell after another."""

    def expect(self, cells: Sequence[Cell]) -> None:
        """Cells that will be measured, in order. What they need may be begun ahead."""
        ...

    def measure(self, cell: Cell, report: Report) -> Measured:
        """One cell. What goes wrong with the subject is ``Measured.error``, never an exception."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


def measure_for(experiment: Experiment, traces: Path) -> Measure:
    """The one that an experiment needs; recordings go to the folder ``traces``."""
    if isinstance(experiment.subject, LocalSubject):
        from engine.isolate.local import LocalMeasure

        return LocalMeasure(experiment.matrix, experiment.subject, traces)
    from engine.isolate.served import ServedMeasure

    return ServedMeasure(experiment.matrix, experiment.subject, traces)
