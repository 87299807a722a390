"""What runs on a node of a Ray cluster: it measures the cells that it is handed, in a folder of its own.

Everything that crosses is text in the forms of ``engine.isolate.codec``, or bytes of files.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

from engine.isolate.codec import EXPERIMENT, MEASURED
from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.plain_book import PLAIN_FILE
from engine.isolate.served import ServedMeasure
from engine.isolate.started import ServerDied
from engine.isolate.store import TRACES
from engine.isolate.subject import measure_for
from engine.server.client import ServerError

PART = 16 << 20  # bytes of a file at once


class Stopped(Exception):
    """The driver does not want it any more."""


class Worker:
    """One actor. :meth:`stop` and :meth:`state` are answered while a cell is measured."""

    def __init__(self, experiment: str, plain: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ddtree-cells-"))
        self._traces = self._folder / TRACES
        self._traces.mkdir()
        (self._folder / PLAIN_FILE).write_text(plain, encoding="utf-8")
        self._experiment = here(EXPERIMENT.loads(experiment, "experiment"))
        self._cells = {cell.key: cell for cell in self._experiment.matrix}
        self._measure = measure_for(self._experiment, self._traces)
        self._state, self._over = ("", 0.0), threading.Event()
        self._sizes: dict[str, int] = {}  # of files that the driver was told of

    def state(self) -> tuple[str, float]:
        """Words and share of the cell, as of a report."""
        return self._state

    def ask_plain(self) -> tuple[str, str]:
        """The lines of plain decoding, and what went wrong with it, empty: nothing."""
        problem = ""
        try:
            if isinstance(self._measure, ServedMeasure):
                self._measure.ask_plain(self._report)
        except (ServerError, ServerDied) as error:
            problem = str(error)
        except Stopped:
            problem = "stopped"
        path = self._folder / PLAIN_FILE
        return path.read_text(encoding="utf-8"), problem

    def measure(self, key: str) -> tuple[str, dict[str, int]]:
        """The line of a cell, and the bytes of each file that is new or has grown. The line is empty after a stop."""
        try:
            line = MEASURED.dumps(self._measure.measure(self._cells[key], self._report))
        except Stopped:
            line = ""
        sizes = {
            path.name: path.stat().st_size for path in self._traces.iterdir() if path.is_file()
        }
        changed = {name: size for name, size in sizes.items() if self._sizes.get(name) != size}
        self._sizes = sizes
        return line, changed

    def part(self, name: str, offset: int, most: int) -> bytes:
        """Bytes of a file."""
        with open(self._traces / name, "rb") as file:
            file.seek(offset)
            return file.read(min(most, PART))

    def stop(self) -> None:
        """End the measurement that goes on, in order; :meth:`measure` then returns."""
        self._over.set()

    def close(self) -> None:
        """End what was started, and leave no file."""
        self._measure.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _report(self, words: str, share: float) -> None:
        self._state = (words, share)
        if self._over.is_set():
            raise Stopped


def here(experiment: Experiment) -> Experiment:
    """The experiment on this node: a server gets a port that is free here, and none loads ahead.

    Workers load theirs at the same time anyway.
    """
    subject = experiment.subject
    if not isinstance(subject, ServerSubject):
        return experiment
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{found.getsockname()[1]}"
    return replace(experiment, subject=replace(subject, url=url, ahead=0))
