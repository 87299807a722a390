"""X-rays and leak masses of steps as background jobs, kept by what the step holds.

A step that was X-rayed once is not X-rayed again, whichever recording holds it. The threads import what is heavy; a
kernel runs in a child process of its own.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from typing import Any

from engine.checks.context import StepContext, once_a_step
from engine.layout import MaskKind, MaskView
from workbench import background
from workbench.background import Job, ProgressFn, Stopped
from workbench.loaded import Loaded
from workbench.stepview import StepView

KERNELS = ("engine", "sglang", "addressed")


@once_a_step
def digest(context: StepContext) -> str:
    """What the step holds, as one word."""
    from engine.trace import dumps

    return hashlib.sha256(dumps(context.step).encode()).hexdigest()


def xray_of(context: StepContext, kernel: str) -> Job | None:
    """The X-ray of a step; its result is an :class:`engine.xray.report.XRay`."""
    return background.store().get(("x-ray", digest(context), kernel))


def start_xray(context: StepContext, kernel: str) -> Job:
    """Begin one, or hand out the one that there is."""

    def work(progress: ProgressFn, stop: threading.Event) -> Any:
        from engine.xray.kernels import Kernel
        from engine.xray.process import XRayStopped, xray_step

        try:
            return xray_step(context.step, Kernel(kernel), progress=progress, stop=stop)
        except XRayStopped as stopped:
            raise Stopped from stopped

    return background.store().start(("x-ray", digest(context), kernel), work)


def measured(view: StepView, kernel: str) -> MaskView | None:
    """The measured mask of a request, with the bytes that the address formula reads; None until it was X-rayed."""
    job = xray_of(view.context, kernel)
    if job is None or job.result is None or not view.well_formed:
        return None
    mask: MaskView = job.result.mask(MaskKind.MEASURED, view.request, view.prefix_len)
    addressed = view.mask(MaskKind.ADDRESSED)
    return mask if addressed is None else replace(mask, places=addressed.places)


def can_leak(loaded: Loaded) -> bool:
    """Whether a recording names its target and holds its prompts, so that a step can be run again."""
    header = loaded.header
    return bool(header.model) and any(prompt.tokens for prompt in header.prompts)


def leak_job(loaded: Loaded, context: StepContext) -> Job | None:
    """The leak mass of a step; its result is the report of :mod:`engine.xray.leak_report`."""
    return background.store().get(_leak_key(loaded, context))


def start_leak(loaded: Loaded, context: StepContext) -> Job:
    """Begin one, or hand out the one that there is."""
    path, step, model = loaded.trace.path, context.step, str(loaded.header.model)

    def work(progress: ProgressFn, stop: threading.Event) -> Any:
        from engine.models.catalog import ModelUnavailable
        from engine.trace import open_trace
        from engine.xray.history import committed_tokens
        from engine.xray.leak import leak_of
        from engine.xray.leak_report import leak_report
        from workbench import runs

        progress("reading the steps before", 0.0)
        history = committed_tokens(open_trace(path), step.step, step.rank)
        try:
            target = runs.store().model(model, progress)
        except ModelUnavailable as error:
            raise ValueError(str(error)) from error
        progress(f"running the step again with {model}", 0.5)
        return leak_report(step, leak_of(step, history, target.model), model)

    return background.store().start(_leak_key(loaded, context), work)


def _leak_key(loaded: Loaded, context: StepContext) -> tuple[str, str, str]:
    return "leak", digest(context), str(loaded.trace.path)
