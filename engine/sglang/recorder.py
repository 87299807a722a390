"""Recorder: the writer's thread. It takes steps from the ring, makes records, checks and writes them.

Nothing it meets reaches the server: a step that cannot be assembled is counted; a disk that takes no more stops the
recording, and the ring is still emptied.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.checks.trace_checker import TraceChecker
from engine.sglang.assemble import Origin, assemble
from engine.sglang.control import ControlError, read_control
from engine.sglang.raw import RawStep
from engine.sglang.sink import Sink
from engine.sglang.tap import Tap
from engine.step import VerifyStep

PERIOD = 1.0  # seconds between two health files
CHECKED_TOGETHER = 512  # steps that one checker remembers


@dataclass
class Written:
    """What the writer's thread did."""

    written: int = 0
    not_assembled: int = 0
    held_back: int = 0  # without a fault, where only failures are wanted
    with_fault: int = 0
    state: str = "recording"
    last_error: str | None = None


class Recorder:
    """Call :meth:`start` once; the thread is a daemon and ends with the process."""

    def __init__(self, tap: Tap, sink: Sink, origin: Origin, folder: Path, facts: dict[str, Any]):
        self.counts = Written()
        self._tap, self._sink, self._origin = tap, sink, origin
        self._folder, self._facts = folder, facts
        self._kept: deque[VerifyStep] = deque()
        self._checker, self._fed = TraceChecker(), 0
        self._control_problem: str | None = None
        self._due = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddtree-tap", daemon=True)

    def start(self) -> None:
        """Read the control file, write a first health file and begin."""
        self._renew()
        self._thread.start()
        atexit.register(self.stop)  # a thread inside native code must not outlive the interpreter

    def stop(self, timeout: float = 5.0) -> None:
        """Write what is waiting and close the file; a second call does nothing."""
        atexit.unregister(self.stop)
        self._ending.set()
        self._tap.ring.wake()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not (self._ending.is_set() and not len(self._tap.ring)):
            step = self._tap.ring.take(0.0 if self._ending.is_set() else 0.1)
            try:
                if step is not None:
                    self._handle(step)
                self._renew()
            except Exception as error:  # of one step: the next may be sound
                self._refused(step, error)
        self._sink.close()
        self._due = 0.0
        self._renew()

    def _handle(self, raw: RawStep) -> None:
        if self.counts.state != "recording":
            return
        raw.wait()
        for each in self._selected(assemble(raw, self._origin)):
            self._write(each)

    def _refused(self, raw: RawStep | None, error: Exception) -> None:
        self.counts.not_assembled += raw is not None
        which = "" if raw is None else f"step {raw.number}: "
        self.counts.last_error = f"{which}{type(error).__name__}: {error}"[:500]

    def _selected(self, step: VerifyStep) -> list[VerifyStep]:
        """The steps to write now: this one, or with a fault in it those kept before it too."""
        control = self._tap.control
        if not control.checks:
            return [step]
        faulty = self._is_faulty(step)
        self.counts.with_fault += faulty
        if not control.only_failures:
            return [step]
        if faulty:
            chosen = [*self._kept, step]
            self._kept.clear()
            return chosen
        self._kept.append(step)
        while len(self._kept) > control.keep_before_failure:
            self._kept.popleft()
            self.counts.held_back += 1
        return []

    def _is_faulty(self, step: VerifyStep) -> bool:
        if self._fed >= CHECKED_TOGETHER:
            self._checker, self._fed = TraceChecker(), 0
        self._fed += 1
        return any(finding.is_cause for finding in self._checker.feed(step))

    def _write(self, step: VerifyStep) -> None:
        try:
            self._sink.write(step)
        except OSError as error:
            self.counts.state = "stopped: the disk takes no more"
            self.counts.last_error = f"{type(error).__name__}: {error}"[:500]
        else:
            self.counts.written += 1

    def _renew(self) -> None:
        """Once a second: what is wanted, and how things stand."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PERIOD
        try:
            self._tap.control, self._control_problem = read_control(self._folder), None
        except ControlError as problem:
            self._control_problem = str(problem)
        write_health(self._folder / f"health.{self._name}.json", self.health())

    @property
    def _name(self) -> str:
        return "-".join(filter(None, (self._origin.group, f"rank{self._origin.rank}")))

    def health(self) -> dict[str, Any]:
        """How things stand, as plain JSON values."""
        counts, own = self._tap.counts, self.counts
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "process": os.getpid(),
            **self._facts,
            "state": own.state,
            "steps": {
                "seen": counts.seen,
                "written": own.written,
                "dropped": self._tap.ring.dropped,
                "unmatched": counts.unmatched,
                "not_taken": counts.not_taken,
                "not_assembled": own.not_assembled,
                "held_back": own.held_back,
                "with_fault": own.with_fault,
            },
            "hook_errors": counts.errors,
            "last_error": own.last_error or counts.last_error,
            "control": asdict(self._tap.control),
            "control_problem": self._control_problem,
            "file": str(self._sink.path) if self._sink.path else None,
            "removed_parts": self._sink.removed,
        }


def write_health(path: Path, found: dict[str, Any]) -> None:
    """Replace the file in one go; a disk that takes no more leaves the old one, whose time then tells."""
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(beside, path)
    except OSError:
        return
