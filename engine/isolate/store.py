"""The folder of one experiment: ``experiment.json``, ``results.jsonl`` (a line a cell, as they come), ``traces/``.

What a server's near-tie is, is decided when results are read: :meth:`Store.retie` asks for no server.

A stopped experiment goes on from here: cells that have a line are not measured again. A line that was cut off, as a
killed process leaves one, counts as not measured.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.isolate.cell import Cell
from engine.isolate.codec import EXPERIMENT, MEASURED
from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.lines import append_line, text_of, whole_lines
from engine.isolate.measured import Measured

WHAT, RESULTS, TRACES = "experiment.json", "results.jsonl", "traces"


@dataclass
class Store:
    """Results of one experiment, on disk and in memory."""

    folder: Path
    experiment: Experiment
    results: dict[Cell, Measured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known = frozenset(self.experiment.matrix)

    @classmethod
    def create(cls, folder: Path, experiment: Experiment) -> Store:
        """A new folder. Raises ``ValueError`` where there is something already."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder}: expected a new or an empty folder, found something in it")
        (folder / TRACES).mkdir(parents=True, exist_ok=True)
        (folder / WHAT).write_text(EXPERIMENT.dumps(experiment) + "\n", encoding="utf-8")
        return cls(folder, experiment)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """A folder that was made before. Raises ``ValueError`` for one that holds no experiment."""
        if not (folder / WHAT).is_file():
            raise ValueError(f"{folder}: expected the folder of an experiment ({WHAT}), found none")
        store = cls(folder, EXPERIMENT.loads(text_of(folder / WHAT), str(folder / WHAT)))
        for where, line in whole_lines(folder / RESULTS):
            store._take(MEASURED.loads(line, where), where)
        return store

    @property
    def traces(self) -> Path:
        """Where recordings go."""
        return self.folder / TRACES

    @property
    def left(self) -> list[Cell]:
        """Cells without a result, in order."""
        return [cell for cell in self.experiment.matrix if cell not in self.results]

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """For one at a time, among all processes of this machine. Raises ``ValueError`` while another one measures."""
        place = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # a file system without locks
                _lock(place, self.folder)
            yield
        finally:
            os.close(place)

    def add(self, measured: Measured) -> None:
        """Keep one result."""
        append_line(self.folder / RESULTS, MEASURED.dumps(measured))
        self._take(measured, str(self.folder / RESULTS))

    def retie(self, tie: float) -> None:
        """Judge a server's results by another near-tie, from now on. Raises ``ValueError`` for the local engine's."""
        subject = self.experiment.subject
        if not isinstance(subject, ServerSubject):
            raise ValueError(
                "tie: expected an experiment on a server, found one on the local engine"
            )
        self.experiment = replace(self.experiment, subject=replace(subject, tie=tie))
        whole = self.folder / (WHAT + ".new")
        whole.write_text(EXPERIMENT.dumps(self.experiment) + "\n", encoding="utf-8")
        os.replace(whole, self.folder / WHAT)
        for measured in list(self.results.values()):
            self._take(measured, str(self.folder / RESULTS))

    def forget(self, cell: Cell) -> None:
        """Measure it again: its line stays, the next one counts."""
        self.results.pop(cell, None)

    def _take(self, measured: Measured, where: str) -> None:
        if measured.cell not in self._known:
            raise ValueError(
                f"{where}: expected a cell of the experiment, found {measured.cell.key}"
            )
        subject = self.experiment.subject
        if isinstance(subject, ServerSubject):
            own = tuple(request.at_tie(subject.tie) for request in measured.requests)
            measured = replace(measured, requests=own)
        self.results[measured.cell] = measured


def _lock(place: int, folder: Path) -> None:
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{folder}: is measured by another process now") from None
