"""Work that goes on in threads of this process, kept by what it is about: a session dies with its socket.

Not covered: runs of the engine, which have a store of their own (:mod:`workbench.runs`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import streamlit as st

KEPT = 40

ProgressFn = Callable[[str, float], None]
Work = Callable[
    [ProgressFn, threading.Event], Any
]  # progress(label, fraction); the event asks to stop


class State(StrEnum):
    """Where a job stands."""

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


class Stopped(Exception):
    """The user would not wait for it."""


@dataclass(eq=False)
class Job:
    """One job. Written by its thread alone, each field replaced as a whole; read by any session."""

    state: State = State.RUNNING
    label: str = "starting"
    fraction: float = 0.0
    result: Any = None
    error: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Ask it to end."""
        self._stop.set()

    def run(self, work: Work) -> None:
        """Body of the thread: never raises, the error becomes the job's."""
        try:
            self.result = work(self._progress, self._stop)
            self.state = State.FINISHED
        except Stopped:
            self.state = State.STOPPED
        except (ValueError, OSError) as error:
            self.error, self.state = str(error), State.FAILED
        except Exception as error:
            self.error, self.state = f"{type(error).__name__}: {error}", State.FAILED

    def _progress(self, label: str, fraction: float) -> None:
        self.label, self.fraction = label, fraction
        if self._stop.is_set():
            raise Stopped


class JobStore:
    """All jobs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[Hashable, Job] = {}

    def start(self, key: Hashable, work: Work) -> Job:
        """Begin in a thread of its own; a job that runs or is finished is handed out again."""
        with self._lock:
            held = self._jobs.get(key)
            if held is not None and held.state in (State.RUNNING, State.FINISHED):
                return held
            job = self._jobs[key] = Job()
            ended = [k for k, j in self._jobs.items() if j.state is not State.RUNNING]
            for old in ended[: max(0, len(self._jobs) - KEPT)]:
                del self._jobs[old]
        threading.Thread(target=job.run, args=(work,), name="background", daemon=True).start()
        return job

    def get(self, key: Hashable) -> Job | None:
        """A job by its key."""
        return self._jobs.get(key)

    def running(self) -> list[Job]:
        """Jobs in progress."""
        return [job for job in self._jobs.values() if job.state is State.RUNNING]


@st.cache_resource
def store() -> JobStore:
    """The one store of this process."""
    return JobStore()
