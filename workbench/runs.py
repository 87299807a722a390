"""Runs of the engine in background threads, kept by the process: a session dies with its socket, a
run does not.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import streamlit as st

from engine.decoding.events import (
    Event,
    Finished,
    PlainTokens,
    Progress,
    RunSummary,
    StepRecorded,
    TreeTokens,
)
from engine.decoding.run_settings import RunSettings
from engine.decoding.session import run
from engine.models.catalog import ModelUnavailable, Target, load_target
from engine.models.device import find_device, find_dtype
from engine.models.progress import ProgressFn
from engine.trace.writer import SUFFIX
from workbench.figures.strip import StepBar
from workbench.traces import key_of, safe_name, traces_folder
from workbench.walks import Walk, walks_of

KEPT_RUNS = 20

Loader = Callable[[RunSettings, ProgressFn], Target]
Where = tuple[str, str, str]  # model, device, dtype


class State(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class Written:
    """Tokens of one request so far."""

    tokens: tuple[int, ...] = ()
    text: str = ""


@dataclass(eq=False)
class Job:
    """One run. Written by its thread alone, each field replaced as a whole; read by any session."""

    id: str
    settings: RunSettings
    trace_path: Path
    state: State = State.RUNNING
    label: str = "starting"
    fraction: float = 0.0
    plain: dict[str, Written] = field(default_factory=dict)
    tree: dict[str, Written] = field(default_factory=dict)
    bars: tuple[StepBar, ...] = ()
    walks: tuple[Walk, ...] = ()
    summary: RunSummary | None = None
    error: str = ""
    target: Target | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> str:
        """Name of its recording."""
        return key_of(self.trace_path)

    def stop(self) -> None:
        """End after the current token; what was recorded stays."""
        self._stop.set()

    def work(self, load: Loader) -> None:
        """Body of the thread: never raises, the error becomes the run's."""
        try:
            self.target = load(self.settings, self._progress)
            self.label, self.fraction = "reading the prompts", 0.0
            self.trace_path.parent.mkdir(parents=True, exist_ok=True)
            events = run(self.settings, self.target, trace_path=self.trace_path)
            self._consume(events)
        except Stopped:
            self.state = State.STOPPED
        except (ModelUnavailable, ValueError) as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")

    def _consume(self, events: Iterator[Event]) -> None:
        try:
            for event in events:
                self._take(event)
                if self._stop.is_set() and not isinstance(event, Finished):
                    raise Stopped
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()

    def _take(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.label, self.fraction = event.label, event.fraction
        elif isinstance(event, PlainTokens):
            self.plain = {**self.plain, event.rid: Written(event.tokens, event.text)}
            self._count("plain decoding", self.plain)
        elif isinstance(event, TreeTokens):
            self.tree = {**self.tree, event.rid: Written(event.tokens, event.text)}
            self._count(self.settings.method, self.tree)
        elif isinstance(event, StepRecorded):
            lengths = event.step.outcome.accept_length
            total = None if lengths is None else int(lengths.sum())
            self.bars = (*self.bars, StepBar(event.step.step, total, event.step.raw_bs, 0))
            self.walks = (*self.walks, *walks_of(event.step))
        elif isinstance(event, Finished):
            self.summary, self.fraction, self.state = event.summary, 1.0, State.FINISHED

    def _count(self, what: str, written: dict[str, Written]) -> None:
        done = sum(len(part.tokens) for part in written.values())
        total = len(self.settings.prompts) * self.settings.max_new_tokens
        self.label, self.fraction = f"{what}: {done} of at most {total} tokens", done / total

    def _progress(self, label: str, fraction: float) -> None:
        self.label, self.fraction = label, fraction
        if self._stop.is_set():
            raise Stopped

    def _fail(self, message: str) -> None:
        self.error, self.state = message, State.FAILED


class Stopped(Exception):
    """The user ended the run."""


class RunStore:
    """All runs of this process, by id; models are loaded once and shared, since a run only reads
    them.
    """

    def __init__(self, load: Callable[..., Target] = load_target):
        self._load, self._lock = load, threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._targets: dict[Where, Target] = {}
        self._loading = threading.Lock()

    def start(self, settings: RunSettings) -> Job:
        """Begin a run in a thread of its own."""
        job_id = secrets.token_hex(4)
        job = Job(job_id, settings, traces_folder() / f"{_file_name(settings, job_id)}{SUFFIX}")
        with self._lock:
            self._jobs[job_id] = job
            ended = [j.id for j in self._jobs.values() if j.state is not State.RUNNING]
            for old in ended[: max(0, len(self._jobs) - KEPT_RUNS)]:
                del self._jobs[old]
        threading.Thread(
            target=job.work, args=(self.target,), name=f"run {job_id}", daemon=True
        ).start()
        return job

    def target(self, settings: RunSettings, progress: ProgressFn) -> Target:
        """The model of a run, see :meth:`model`."""
        return self.model(settings.model, progress, settings.device, settings.dtype)

    def model(
        self, name: str, progress: ProgressFn, device: str = "cpu", dtype: str = "float32"
    ) -> Target:
        """A loaded model, one a device and dtype; a second caller waits for the first."""
        place, kind = find_device(device), find_dtype(dtype)
        key = (name, str(place), dtype)
        with self._loading:
            if key not in self._targets:
                self._targets[key] = self._load(name, dtype=kind, device=place, progress=progress)
            return self._targets[key]

    def get(self, job_id: str | None) -> Job | None:
        """A run by its id."""
        return self._jobs.get(job_id or "")

    def running(self) -> list[Job]:
        """Runs in progress, whichever tab began them."""
        return [job for job in self._jobs.values() if job.state is State.RUNNING]


def _file_name(settings: RunSettings, job_id: str) -> str:
    shape = f"{settings.budget}-{settings.topk or 'all'}"
    parts = [datetime.now().strftime("%m%d-%H%M%S"), settings.model, settings.method, shape]
    return safe_name("-".join([*parts, *([settings.fault] if settings.fault else []), job_id]))


@st.cache_resource
def store() -> RunStore:
    """The one store of this process."""
    return RunStore()
