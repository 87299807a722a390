"""Steps of a recording on their way to the checks: unreadable ones set aside, progress shown,
Ctrl-C heeded.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.step import VerifyStep
    from engine.trace import Trace

PATIENCE, BETWEEN = 1.0, 0.1  # seconds before progress is shown, and from one update to the next


class Steps:
    """Iterates over readable steps; the first Ctrl-C ends the iteration, so that what was found can
    be printed.
    """

    def __init__(self, name: str, trace: Trace):
        self.errors: list[Exception] = []
        self.interrupted = False
        self._name, self._trace = name, trace
        self._progress: Any = None
        self._handler: Any = None

    def __iter__(self) -> Iterator[VerifyStep]:
        due = time.monotonic() + PATIENCE
        total = len(self._trace)
        for position in range(total):
            if self.interrupted:
                return
            if time.monotonic() > due:
                self._show(position, total)
                due = time.monotonic() + BETWEEN
            try:
                step = self._trace.step(position)
            except (ValueError, OSError) as error:
                self.errors.append(error)
                continue
            yield step

    def __enter__(self) -> Steps:
        self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._handler)
        if self._progress is not None:
            self._progress.stop()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        signal.signal(signal.SIGINT, self._handler)  # a second Ctrl-C ends the command at once

    def _show(self, position: int, total: int) -> None:
        if self._progress is None:
            if not sys.stderr.isatty():
                return
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
            self._progress.add_task(self._name, total=total)
        self._progress.update(self._progress.task_ids[0], completed=position)
