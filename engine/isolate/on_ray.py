"""Run an experiment on a Ray cluster: a worker for each place that has what a cell needs, results as they come.

A worker measures one cell at a time: any cell on the local engine, all cells of one server where one is started. Plain
decoding is asked by the first worker, once. Results, logs and recordings come into the one folder, as if the cells had
been measured here, and whatever is left is measured when it is run again.

Every node needs this package, in the same version. A server's command must name ``{port}``: each worker finds a free
one, since several may share a machine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from engine.isolate.cell import Cell
from engine.isolate.codec import EXPERIMENT
from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.lab import Done, Event, Started
from engine.isolate.launch import Launch, launch_of, placeholders
from engine.isolate.measured import Measured
from engine.isolate.plain import keys_of
from engine.isolate.plain_book import PLAIN_FILE, PlainBook
from engine.isolate.ray_cluster import ClusterError, cluster, slots
from engine.isolate.ray_hired import Hired
from engine.isolate.ray_worker import Worker
from engine.isolate.store import Store
from engine.isolate.subject import Report, measure_for

TICK = 0.2  # seconds from one report to the next
ASK = 1.0  # seconds from one question how workers stand to the next


def run_on_ray(
    store: Store,
    report: Report,
    *,
    address: str | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    patience: float = 30.0,
) -> Iterator[Event]:
    """Measure what is left. What ``report`` raises ends it; every cell that was measured stays.

    ``num_cpus``, ``num_gpus``: of one worker. Raises ``ValueError`` for an experiment that cannot be run, or that
    another process measures now, and :class:`ClusterError` for a cluster that cannot run it, after ``patience``
    seconds at the latest.
    """
    check(store)
    if store.left:
        with store.measuring(), cluster(address, patience) as ray:
            yield from Run(ray, store, report, num_cpus, num_gpus).events()


def check(store: Store) -> None:
    """Raises ``ValueError`` for what would fail on every worker."""
    measure_for(store.experiment, store.traces).close()
    subject = store.experiment.subject
    if isinstance(subject, ServerSubject):
        values = tuple(value for _, value in subject.environment)
        for name in ("command", "plain_command"):
            if "port" not in placeholders((*getattr(subject, name), *values)):
                why = "since servers on one machine must not meet"
                raise ValueError(f"{name}: expected {{port}}, {why}, found it nowhere")


def groups_of(experiment: Experiment, cells: list[Cell], store: Store) -> list[deque[Cell]]:
    """Cells that one worker measures one after another: those that share a server."""
    subject = experiment.subject
    if not isinstance(subject, ServerSubject):
        return [deque([cell]) for cell in cells]
    groups: dict[Launch, deque[Cell]] = {}
    for cell in cells:
        groups.setdefault(launch_of(subject, cell, store.traces), deque()).append(cell)
    return list(groups.values())


class Run:
    """One run on a cluster that is there."""

    def __init__(
        self, ray: Any, store: Store, report: Report, num_cpus: float, num_gpus: float
    ) -> None:
        self._ray, self._store, self._report = ray, store, report
        self._actor = ray.remote(max_concurrency=2, num_cpus=num_cpus, num_gpus=num_gpus)(Worker)
        self._slots = slots(ray, num_cpus, num_gpus)
        self._book = PlainBook(store.folder / PLAIN_FILE)
        self._left = store.left
        self._groups = deque(groups_of(store.experiment, self._left, store))
        self._workers: list[Hired] = []
        self._begun, self._done, self._started = 0, 0, time.monotonic()
        self._said: list[str] = []
        self._asked = 0.0  # when

    def events(self) -> Iterator[Event]:
        """Everything is ended when this is."""
        try:
            problem = self._ask_plain()
            if problem:
                yield from self._all_failed(problem)
                return
            while self._groups or any(worker.cell for worker in self._workers):
                self._hire()
                for worker in self._ready():
                    yield from self._take(worker)
        finally:
            for worker in self._workers:
                worker.stop()
            for worker in self._workers:
                worker.let_go()

    def _hire(self) -> None:
        """As many workers as there are places and groups for."""
        waiting = sum(not worker.ready for worker in self._workers)
        while len(self._workers) < self._slots and waiting < len(self._groups):
            self._workers.append(self._new())
            waiting += 1

    def _new(self) -> Hired:
        handle = self._actor.remote(EXPERIMENT.dumps(self._store.experiment), self._book.text)
        return Hired(self._ray, handle, self._store.traces)

    def _ready(self) -> list[Hired]:
        """Workers that have answered, after a moment at most."""
        refs = [worker.ref for worker in self._workers if worker.ref]
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=TICK)
        self._report(self._words(), self._done / len(self._left))
        return [worker for worker in self._workers if worker.ref in ready]

    def _words(self) -> str:
        """What each worker is at, in its own words once a second."""
        if time.monotonic() - self._asked > ASK:
            self._said = [
                f"{worker.cell.key if worker.cell else 'plain decoding'}: {worker.state()}"
                for worker in self._workers
                if worker.ready and worker.ref
            ]
            self._asked = time.monotonic()
        return "; ".join(self._said) or "waiting for a worker"

    def _take(self, worker: Hired) -> Iterator[Event]:
        """What a worker brings, and what it does next."""
        if worker.leaving:
            self._dismiss(worker)
            return
        if worker.cell is None:
            worker.answer()
        else:
            yield self._result(worker)
        if worker not in self._workers:
            return  # it is gone
        if not worker.group and self._groups:
            worker.group = self._groups.popleft()
        if worker.group:
            total = len(self._store.experiment.matrix)
            yield Started(worker.begin(), self._number(), total, self._rest())
        else:
            worker.leave()

    def _result(self, worker: Hired) -> Done:
        cell = worker.cell
        assert cell is not None
        try:
            measured = worker.measured()
        except ClusterError as error:
            measured = Measured(cell, error=str(error))
            if worker.group:
                self._groups.appendleft(worker.group)
            self._dismiss(worker)
        worker.cell = None
        self._store.add(measured)
        self._done += 1
        return Done(measured)

    def _dismiss(self, worker: Hired) -> None:
        self._workers.remove(worker)
        worker.let_go()

    def _number(self) -> int:
        self._begun += 1
        return len(self._store.experiment.matrix) - len(self._left) + self._begun - 1

    def _rest(self) -> float | None:
        if not self._done:
            return None
        each = (time.monotonic() - self._started) / self._done
        return each * (len(self._left) - self._done)

    def _ask_plain(self) -> str:
        """Empty, or why there is nothing to compare with."""
        matrix, subject = self._store.experiment.matrix, self._store.experiment.subject
        if not isinstance(subject, ServerSubject) or not keys_of(matrix, self._book):
            return ""
        worker = self._new()
        self._workers.append(worker)
        while not worker.ready:
            for each in self._ready():
                each.answer()
        worker.ask_plain()
        while not self._ready():
            continue
        text, problem = worker.answer()
        self._book.merge(text, "worker, plain decoding")
        worker.idle()
        return str(problem)

    def _all_failed(self, problem: str) -> Iterator[Event]:
        for cell in self._left:
            measured = Measured(cell, error=problem)
            self._store.add(measured)
            yield Done(measured)
