"""The folder of one experiment: ``experiment.json``, ``results.jsonl`` (a line a cell, as they come), ``traces/``.

A stopped experiment goes on from here: cells that have a line are not measured again. A line that was cut off, as a
killed process leaves one, counts as not measured.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from engine.isolate.cell import Cell
from engine.isolate.codec import EXPERIMENT, MEASURED
from engine.isolate.experiment import Experiment
from engine.isolate.measured import Measured

WHAT, RESULTS, TRACES = "experiment.json", "results.jsonl", "traces"
MAX_BYTES = 256 << 20


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
        store = cls(folder, EXPERIMENT.loads(_text(folder / WHAT), str(folder / WHAT)))
        results = folder / RESULTS
        if results.exists():
            for number, line in enumerate(_text(results).splitlines(keepends=True), 1):
                if line.endswith("\n") and line.strip():
                    store._take(MEASURED.loads(line, f"{results}:{number}"), f"{results}:{number}")
        return store

    @property
    def traces(self) -> Path:
        """Where recordings go."""
        return self.folder / TRACES

    @property
    def left(self) -> list[Cell]:
        """Cells without a result, in order."""
        return [cell for cell in self.experiment.matrix if cell not in self.results]

    def add(self, measured: Measured) -> None:
        """Keep one result. A line that was cut off before it is ended first."""
        path = self.folder / RESULTS
        with open(path, "ab+") as file:
            if file.tell() and not _ends_with_newline(path):
                file.truncate(_end_of_last_line(path))
            file.write((MEASURED.dumps(measured) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        self._take(measured, str(path))

    def forget(self, cell: Cell) -> None:
        """Measure it again: its line stays, the next one counts."""
        self.results.pop(cell, None)

    def _take(self, measured: Measured, where: str) -> None:
        if measured.cell not in self._known:
            raise ValueError(
                f"{where}: expected a cell of the experiment, found {measured.cell.key}"
            )
        self.results[measured.cell] = measured


def _text(path: Path) -> str:
    if (size := path.stat().st_size) > MAX_BYTES:
        raise ValueError(f"{path}: expected at most {MAX_BYTES} bytes, found {size}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8, found {error.reason}") from None


def _ends_with_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _end_of_last_line(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1
