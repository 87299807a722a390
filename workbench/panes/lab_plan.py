"""What an experiment will do before it begins: cells, runs, tokens, and how long, once a few tokens were tried."""

from __future__ import annotations

import threading
from typing import Any

import streamlit as st

from engine.isolate.experiment import Experiment, LocalSubject
from engine.isolate.local import LocalMeasure
from engine.isolate.plan import hardest, plan_of
from workbench import background, labs
from workbench.background import Job, ProgressFn, State
from workbench.lab_control import begin
from workbench.lab_folders import labs_folder
from workbench.polling import draw_again_every
from workbench.tokens import for_markdown, message

POLL = 0.5  # seconds
ESTIMATE = "lab estimate job"  # in the session


def draw_plan(experiment: Experiment) -> None:
    """The plan and the button; why there is none, where cells cannot be run."""
    problem = problem_of(experiment)
    if problem is not None:
        st.error(message(problem))
        return
    job = background.store().get(_key(experiment))
    if job is not None and job.state is State.RUNNING:
        draw_again_every(POLL, "lab plan", lambda: _follow(experiment, job))
    else:
        _draw(experiment, job)


def problem_of(experiment: Experiment) -> str | None:
    """Why some cell cannot be run; None where all can, as far as that is known before."""
    if isinstance(experiment.subject, LocalSubject):
        try:
            LocalMeasure(experiment.matrix, experiment.subject, labs_folder())
        except ValueError as error:
            return str(error)
    return None


def _follow(experiment: Experiment, job: Job) -> None:
    if job.state is not State.RUNNING:
        st.rerun(scope="app")
        return
    _draw(experiment, job)


def _draw(experiment: Experiment, job: Job | None) -> None:
    tried = job.result if job is not None and job.state is State.FINISHED else None
    st.markdown(f"**Plan** · {for_markdown(str(plan_of(experiment, {}, tried)))}")
    with st.container(horizontal=True, vertical_alignment="center", key="lab-plan"):
        # No callback: it would be called with the values that were shown before the click.
        if st.button("Start", key="lab start", type="primary"):
            _end_estimate()
            begin(experiment)
            st.rerun()
        if job is not None and job.state is State.RUNNING:
            st.button("Stop", key="lab estimate stop", on_click=job.stop)
            st.caption(for_markdown(f"trying a few tokens: {job.label}"))
        elif tried is None and isinstance(experiment.subject, LocalSubject):
            _draw_estimate(experiment)
    if job is not None and job.state is State.FAILED:
        st.warning(message(f"A few tokens could not be tried: {job.error}"))


def _draw_estimate(experiment: Experiment) -> None:
    if st.button("How long?", key="lab estimate", help="decodes a few tokens of the hardest cell"):
        _estimate(experiment)
        st.rerun()


def _estimate(experiment: Experiment) -> None:
    """Try the hardest cell in a job of its own."""
    _end_estimate()
    measure = labs.store().measure(experiment, labs_folder())
    cell = hardest(list(experiment.matrix))

    def work(progress: ProgressFn, stop: threading.Event) -> Any:
        return cell, measure.seconds_of(cell, progress)

    st.session_state[ESTIMATE] = background.store().start(_key(experiment), work)


def _end_estimate() -> None:
    """One that was begun for other values is of no use any more."""
    job: Job | None = st.session_state.pop(ESTIMATE, None)
    if job is not None:
        job.stop()


def _key(experiment: Experiment) -> tuple[str, Experiment]:
    return "lab estimate", experiment
