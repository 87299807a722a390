"""Recorder: makes records of steps, checks and writes them, and says how things stand. It runs in the writer's process.

Nothing it meets reaches the server: a step that cannot be assembled is counted; a disk that takes no more stops the
recording, and steps are still taken.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.checks.trace_checker import TraceChecker
from engine.sglang.assemble import Origin, assemble
from engine.sglang.control import Control
from engine.sglang.pace import Paced, Paces
from engine.sglang.raw import RawStep
from engine.sglang.sink import Sink
from engine.step import VerifyStep

PATIENCE = 3  # reports that a step waits for the next one, which may have been lost
CHECKED_TOGETHER = 512  # steps that one checker remembers


@dataclass
class Written:
    """What became of the steps here."""

    written: int = 0
    not_assembled: int = 0
    held_back: int = 0  # without a fault, where only failures are wanted
    with_fault: int = 0
    state: str = "recording"
    last_error: str | None = None


@dataclass(frozen=True)
class Report:
    """What the server's process knows, once a second."""

    control: Control
    control_problem: str | None = None
    seen: int = 0
    dropped: int = 0
    unmatched: int = 0
    not_taken: int = 0
    errors: int = 0
    last_error: str | None = None
    gathering: str | None = None  # why arrays are not gathered by the kernel
    paces: list[Paced] = field(default_factory=list)  # since the last report
    spent: dict[str, tuple[float, float]] = field(default_factory=dict)  # seconds in each hook


class Recorder:
    """``facts``: what the health file says of the process besides."""

    def __init__(self, sink: Sink, origin: Origin, folder: Path, facts: dict[str, Any]):
        self.counts = Written()
        self.report = Report(Control())
        self._sink, self._origin = sink, origin
        self._folder, self._facts = folder, facts
        self._kept: deque[VerifyStep] = deque()
        self._paces = Paces()
        self._waiting: RawStep | None = None  # for the next step
        self._waited = 0  # reports that came meanwhile
        self._checker, self._fed = TraceChecker(), 0

    def handle(self, raw: RawStep) -> None:
        """One step. It may have to wait for the next one, which tells what it committed."""
        self._release(raw)
        if raw.next_tells:
            self._waiting, self._waited = raw, 0
        else:
            self._record(raw)

    def _release(self, following: RawStep | None = None) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            if following is not None:
                waiting.told_by(following)
            self._record(waiting)

    def _record(self, raw: RawStep) -> None:
        """Whatever is wrong with it is counted."""
        if self.counts.state != "recording":
            return
        try:
            for each in self._selected(assemble(raw, self._origin)):
                self._write(each)
        except Exception as error:  # of one step: the next may be sound
            self.counts.not_assembled += 1
            self.counts.last_error = f"step {raw.number}: {type(error).__name__}: {error}"[:500]

    def renew(self, report: Report | None = None) -> None:
        """Write the health file, with what the server's process reported last."""
        if report is not None:
            before, self.report = self.report, report
            if report.control.alternate == before.control.alternate:
                self._paces.add(report.paces)
            else:  # turns of another length: counted anew
                self._paces = Paces()
            self._waited += 1
            if self._waited > PATIENCE:
                self._release()
        write_health(self._folder / health_file(self._origin), self.health())

    def close(self, state: str | None = None) -> None:
        """Close the file; ``state``: how the recording ended, unless it had stopped before."""
        self._release()
        try:
            self._sink.close()
        except OSError as error:
            self.counts.last_error = f"{type(error).__name__}: {error}"[:500]
        if state is not None and self.counts.state == "recording":
            self.counts.state = state
        self.renew()

    def _selected(self, step: VerifyStep) -> list[VerifyStep]:
        """The steps to write now: this one, or with a fault in it those kept before it too."""
        control = self.report.control
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

    def health(self) -> dict[str, Any]:
        """How things stand, as plain JSON values."""
        report, own = self.report, self.counts
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **self._facts,
            "writer": os.getpid(),
            "state": own.state,
            "steps": {
                "seen": report.seen,
                "written": own.written,
                "dropped": report.dropped,
                "unmatched": report.unmatched,
                "not_taken": report.not_taken,
                "not_assembled": own.not_assembled,
                "held_back": own.held_back,
                "with_fault": own.with_fault,
            },
            "hook_errors": report.errors,
            "gathering": f"by torch: {report.gathering}" if report.gathering else "by the kernel",
            "hook_us_a_step": {
                name: [round(1e6 * seconds / report.seen, 1) for seconds in spent]
                for name, spent in report.spent.items()
                if report.seen and any(spent)
            },
            "step_us": self._paces.found(),
            "last_error": own.last_error or report.last_error,
            "control": asdict(report.control),
            "control_problem": report.control_problem,
            "file": str(self._sink.path) if self._sink.path else None,
            "removed_parts": self._sink.removed,
        }


def health_file(origin: Origin) -> str:
    """Name of a rank's health file."""
    return f"health.{'-'.join(filter(None, (origin.group, f'rank{origin.rank}')))}.json"


def write_health(path: Path, found: dict[str, Any]) -> None:
    """Replace the file in one go; a disk that takes no more leaves the old one, whose time then tells."""
    beside = path.with_name(path.name + ".new")
    try:
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        beside.write_text(
            text, encoding="utf-8", errors="backslashreplace"
        )  # of names that are none
        os.replace(beside, path)
    except OSError:
        return
