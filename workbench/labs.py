"""Experiments that this process has opened, each with the job that measures it: they outlive a session.

One experiment is measured at a time, since their speeds are compared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamlit as st

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment, LocalSubject
from engine.isolate.extend import extend
from engine.isolate.judge import judge
from engine.isolate.lab import MakeMeasure, Started, run_lab
from engine.isolate.local import LocalMeasure
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome, outcomes, request_outcomes
from engine.isolate.store import RESULTS, WHAT, Store
from engine.isolate.subject import Measure, measure_for
from engine.isolate.verdict import Verdict
from engine.models.catalog import Target
from workbench import background, runs
from workbench.background import Job, JobStore, ProgressFn, State
from workbench.lab_folders import is_own, key_of, new_folder
from workbench.runs import RunStore

RESTS = 4  # times as long as judging took


@dataclass(frozen=True)
class Judged:
    """What the engine makes of the results so far."""

    verdict: Verdict
    outcomes: dict[Cell, Outcome]
    requests: dict[Cell, tuple[Outcome, ...]]
    results: dict[Cell, Measured]


@dataclass(eq=False)
class Lab:
    """One experiment. ``now`` and ``since`` are written by the thread that measures alone."""

    store: Store
    stamp: object = None
    job: Job | None = None
    now: Started | None = None  # the cell that is measured
    since: float = 0.0  # when it began, by the monotonic clock
    _judged: tuple[object, Judged] | None = field(default=None, repr=False)
    _rest: float = 0.0  # until when it is not judged again

    @property
    def key(self) -> str:
        """Its name in the URL."""
        return key_of(self.store.folder)

    @property
    def running(self) -> bool:
        """Whether it is measured now."""
        return self.job is not None and self.job.state is State.RUNNING

    @property
    def own(self) -> bool:
        """Whether it may be measured further at once."""
        return is_own(self.store.folder)

    @property
    def seconds_left(self) -> float | None:
        """From the cells measured so far; None before the first."""
        now = self.now
        if now is None or now.seconds_left is None:
            return None
        return max(0.0, now.seconds_left - (time.monotonic() - self.since))

    def judged(self) -> Judged:
        """The verdict, judged again when there is something new; while it is measured, a fifth of the time at most."""
        began = time.monotonic()
        if self._judged is not None and self.running and began < self._rest:
            return self._judged[1]
        results = self.store.results.copy()
        mark = (len(results), *map(id, results.values()))
        if self._judged is None or self._judged[0] != mark:
            experiment = self.store.experiment
            found = outcomes(results.values(), speed_counts=experiment.speed_counts)
            own = request_outcomes(results.values())
            verdict = judge(experiment, results.values())
            self._judged = (mark, Judged(verdict, found, own, results))
            ended = time.monotonic()
            self._rest = ended + RESTS * (ended - began)
        return self._judged[1]

    def work(self, make: MakeMeasure, cells: Sequence[Cell] | None, progress: ProgressFn) -> None:
        """Body of the job: measures what is left, or some cells."""

        def report(words: str, share: float) -> None:
            now = self.now
            done = 0.0 if now is None else (now.number + min(max(share, 0.0), 1.0)) / now.total
            progress(words, done)

        try:
            with closing(run_lab(self.store, report, make=make, cells=cells)) as events:
                for event in events:
                    self.since = time.monotonic()
                    self.now = event if isinstance(event, Started) else self.now
                    report("", 0.0 if isinstance(event, Started) else 1.0)
        finally:
            self.now = None


class LabStore:
    """All experiments of this process, by folder."""

    def __init__(self, make: MakeMeasure, jobs: JobStore) -> None:
        self.measure, self._jobs = make, jobs
        self._lock = threading.Lock()
        self._labs: dict[Path, Lab] = {}
        self._number = 0

    def open(self, folder: Path) -> Lab:
        """Read a folder, again only if it changed. Raises ``ValueError`` and ``OSError`` as :class:`Store` does."""
        with self._lock:
            held = self._labs.get(folder)
            if held is not None and held.running:
                return held
            stamp = _stamp(folder)
            if held is None:
                held = self._labs[folder] = Lab(Store.open(folder), stamp)
            elif held.stamp != stamp:
                held.store, held.stamp = Store.open(folder), stamp
            return held

    def create(self, experiment: Experiment) -> Lab:
        """Begin a new experiment. Raises ``ValueError`` while another is measured."""
        self._refuse_second()
        folder = new_folder(experiment)
        Store.create(folder, experiment)
        return self.resume(self.open(folder))

    def resume(self, lab: Lab, cells: Sequence[Cell] | None = None) -> Lab:
        """Measure what is left, or ``cells``, for which its matrix grows if it must.

        Raises ``ValueError`` while another is measured.
        """
        with self._lock:
            self._refuse_second()
            if cells is not None:
                lab.store = extend(lab.store, cells)
            self._number += 1
            key = ("lab", lab.store.folder, self._number)
            lab.job = self._jobs.start(
                key, lambda progress, stop: lab.work(self.measure, cells, progress)
            )
        return lab

    def running(self) -> Lab | None:
        """The experiment that is measured now."""
        return next((lab for lab in list(self._labs.values()) if lab.running), None)

    def _refuse_second(self) -> None:
        if (other := self.running()) is not None:
            raise ValueError(f"{other.key} is measured now: stop it first, or wait for its end")


def shared_models(models: RunStore) -> MakeMeasure:
    """Measures on the models that the Run page has loaded already."""

    def make(experiment: Experiment, traces: Path) -> Measure:
        subject = experiment.subject
        if not isinstance(subject, LocalSubject):
            return measure_for(experiment, traces)

        def load(name: str, *, progress: ProgressFn, **_: Any) -> Target:
            return models.model(name, progress, subject.device, subject.dtype)

        return LocalMeasure(experiment.matrix, subject, traces, load=load)

    return make


def _stamp(folder: Path) -> object:
    def of(path: Path) -> object:
        try:
            stat = path.stat()
        except OSError:  # not there yet; opening it says what is wrong
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    return of(folder / WHAT), of(folder / RESULTS)


@st.cache_resource
def store() -> LabStore:
    """The one store of this process."""
    return LabStore(shared_models(runs.store()), background.store())
