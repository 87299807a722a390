"""X-rays of steps, in child processes watched by threads of this one; kept by the process, by what the step holds.

A step that was X-rayed once is not X-rayed again, whichever recording holds it. The threads import what is heavy.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import streamlit as st

from engine.checks.context import StepContext, once_a_step
from engine.layout import MaskKind, MaskView
from engine.step import VerifyStep
from workbench.stepview import StepView

if TYPE_CHECKING:
    from engine.xray.report import XRay

KERNELS = ("engine", "sglang", "addressed")
KEPT = 40


class State(StrEnum):
    """Where an X-ray stands."""

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(eq=False)
class Job:
    """One X-ray. Written by its thread alone, each field replaced as a whole; read by any session."""

    kernel: str
    state: State = State.RUNNING
    label: str = "starting the kernel's process"
    fraction: float = 0.0
    xray: XRay | None = None
    error: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """End the child."""
        self._stop.set()

    def work(self, step: VerifyStep) -> None:
        """Body of the thread: never raises, the error becomes the job's."""
        from engine.xray.kernels import Kernel
        from engine.xray.process import XRayStopped, xray_step

        try:
            self.xray = xray_step(
                step, Kernel(self.kernel), progress=self._progress, stop=self._stop
            )
            self.state = State.FINISHED
        except XRayStopped:
            self.state = State.STOPPED
        except (ValueError, OSError) as error:
            self.error, self.state = str(error), State.FAILED
        except Exception as error:
            self.error, self.state = f"{type(error).__name__}: {error}", State.FAILED

    def _progress(self, label: str, fraction: float) -> None:
        self.label, self.fraction = label, fraction

    def request(self, number: int) -> dict[str, Any] | None:
        """The report on one live request; None where there is none yet."""
        return None if self.xray is None else self.xray.report["requests"][number]


class XRayStore:
    """All X-rays of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], Job] = {}
        self._latest: dict[str, str] = {}  # by step, the kernel asked for last

    def start(self, context: StepContext, kernel: str) -> Job:
        """Begin an X-ray in a thread of its own; one that runs or is finished is handed out again."""
        key = digest(context)
        with self._lock:
            self._latest[key] = kernel
            held = self._jobs.get((key, kernel))
            if held is not None and held.state in (State.RUNNING, State.FINISHED):
                return held
            job = self._jobs[key, kernel] = Job(kernel)
            ended = [k for k, j in self._jobs.items() if j.state is not State.RUNNING]
            for old in ended[: max(0, len(self._jobs) - KEPT)]:
                del self._jobs[old]
        threading.Thread(target=job.work, args=(context.step,), name="x-ray", daemon=True).start()
        return job

    def get(self, context: StepContext, kernel: str | None = None) -> Job | None:
        """The X-ray of a step with a kernel, or with the one that was asked for last."""
        key = digest(context)
        return self._jobs.get((key, kernel or self._latest.get(key, "")))


@once_a_step
def digest(context: StepContext) -> str:
    """What the step holds, as one word."""
    from engine.trace import dumps

    return hashlib.sha256(dumps(context.step).encode()).hexdigest()


@st.cache_resource
def store() -> XRayStore:
    """The one store of this process."""
    return XRayStore()


def measured(view: StepView, kernel: str | None = None) -> MaskView | None:
    """The measured mask of a request; None until its step was X-rayed."""
    job = store().get(view.context, kernel)
    if job is None or job.xray is None or not view.well_formed:
        return None
    return job.xray.mask(MaskKind.MEASURED, view.request, view.prefix_len)
