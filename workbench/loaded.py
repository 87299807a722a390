"""A recording that was opened and checked once, shared by all sessions of the process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import streamlit as st

from engine.checks.context import StepContext
from engine.checks.finding import Verdict
from engine.checks.registry import Report, check_trace
from engine.step import VerifyStep
from engine.trace.header import TraceHeader
from engine.trace.reader import Trace, open_trace
from workbench.figures.strip import StepBar

KEPT_CONTEXTS = 24  # decoded steps with their masks


class Loaded:
    """A trace with its report. Steps are decoded under a lock: the file handle is shared."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self._lock = threading.RLock()
        self._contexts: OrderedDict[int, StepContext] = OrderedDict()
        steps = [trace.step(i) for i in range(len(trace))]
        self.report: Report = check_trace(steps)
        self.keys = [(step.step, step.rank) for step in steps]
        self._lengths = [_accepted(step) for step in steps]
        self._requests = [step.raw_bs for step in steps]
        self._texts: dict[int, str] = {}
        for step in steps:
            self._texts.update(step.workbench.token_texts or {})

    @property
    def header(self) -> TraceHeader:
        """What the recording says about itself."""
        return self.trace.header

    @property
    def ranks(self) -> list[int]:
        """Ranks that recorded a step."""
        return sorted({rank for _, rank in self.keys})

    @property
    def texts(self) -> dict[int, str]:
        """Texts of all tokens that the recording names."""
        return self._texts

    def steps_of(self, rank: int) -> list[int]:
        """Step numbers of a rank, in order."""
        return sorted({step for step, other in self.keys if other == rank})

    def position(self, step: int, rank: int) -> int:
        """Where a step lies in the file."""
        return self.keys.index((step, rank))

    def step(self, position: int) -> VerifyStep:
        """One step."""
        with self._lock:
            return self.trace.step(position)

    def context(self, step: int, rank: int) -> StepContext:
        """One step with its oracle and the step before."""
        position = self.position(step, rank)
        with self._lock:
            if position not in self._contexts:
                before = (step - 1, rank)
                previous = self.step(self.keys.index(before)) if before in self.keys else None
                self._contexts[position] = StepContext(self.step(position), previous)
                while len(self._contexts) > KEPT_CONTEXTS:
                    self._contexts.popitem(last=False)
            return self._contexts[position]

    def faulty_steps(self, rank: int | None = None) -> list[int]:
        """Steps with a fault, in order; of one rank or of all."""
        faults = self.report.faults
        return sorted({f.step for f in faults if f.step is not None and rank in (None, f.rank)})

    def bars(self, rank: int) -> list[StepBar]:
        """The strip of one rank."""
        faults: dict[int, int] = {}
        for finding in self.report.findings:
            if (
                finding.verdict is Verdict.FAULT
                and finding.rank == rank
                and finding.step is not None
            ):
                faults[finding.step] = faults.get(finding.step, 0) + 1
        bars = {}
        for position, (step, other) in enumerate(self.keys):
            if other == rank:
                length, requests = self._lengths[position], self._requests[position]
                bars[step] = StepBar(step, length, requests, faults.get(step, 0))
        return [bars[step] for step in sorted(bars)]


def _accepted(step: VerifyStep) -> int | None:
    lengths = step.outcome.accept_length
    return None if lengths is None else int(lengths.sum())


@st.cache_resource(max_entries=6, show_spinner="Reading and checking the recording …")
def _load(path: str, stamp: tuple[int, int]) -> Loaded:
    return Loaded(open_trace(path))


def load(path: Path) -> Loaded:
    """Open and check a recording; again only if the file changed. Raises as ``open_trace`` does."""
    stat = path.stat()
    stamp = (stat.st_mtime_ns, stat.st_size)
    if path.is_dir():
        files = [child.lstat() for child in path.iterdir()]
        stamp = (max((s.st_mtime_ns for s in files), default=0), sum(s.st_size for s in files))
    return _load(str(path), stamp)
