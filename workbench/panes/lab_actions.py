"""What can be done with an experiment: stop, resume, repeat, change, save; and how far it is."""

from __future__ import annotations

import streamlit as st

from engine.isolate.outcome import Outcome
from engine.isolate.plan import duration
from workbench.background import State
from workbench.lab_control import begin, change, go_on
from workbench.lab_words import cell_words
from workbench.labs import Judged, Lab
from workbench.panes.lab_export import draw_export
from workbench.tokens import for_markdown, message
from workbench.verdict import plural

BAR = 620  # pixels


def draw_progress(lab: Lab) -> None:
    """While it is measured: which cell, how long it will take, and the way out."""
    job = lab.job
    assert job is not None
    with st.container(horizontal=True, vertical_alignment="center", key="lab-progress"):
        with st.container(width=BAR):
            st.progress(min(max(job.fraction, 0.0), 1.0), for_markdown(progress_text(lab)))
        st.button(
            "Stop",
            key="lab stop",
            on_click=job.stop,
            help="cells that were measured are kept; it can be resumed",
        )


def progress_text(lab: Lab) -> str:
    """``cell 3 of 16: budget 7, … · run 1 of 2 · about 4 min left``."""
    now, job = lab.now, lab.job
    words = job.label if job is not None else ""
    if now is None:
        return words or "starting"
    parts = [f"cell {now.number + 1} of {now.total}: {cell_words(now.cell)}"]
    parts += [words] if words else []
    left = lab.seconds_left
    parts.append(
        "time left: known after the first cell" if left is None else f"about {duration(left)} left"
    )
    return " · ".join(parts)


def draw_actions(lab: Lab, judged: Judged) -> None:
    """When it rests: how it ended, and what can be done next."""
    _draw_end(lab)
    left = len(lab.store.left)
    failed = tuple(c for c, outcome in judged.outcomes.items() if outcome is Outcome.FAILED)
    experiment = lab.store.experiment
    with st.container(horizontal=True, vertical_alignment="center", key="lab-actions"):
        if lab.own and left:
            st.button(
                f"{'Resume' if judged.results else 'Start'}: {plural(left, 'cell')} left",
                key="lab resume",
                type="primary",
                on_click=go_on,
                args=(lab,),
            )
        if lab.own and failed:
            st.button(
                f"Measure {plural(len(failed), 'failed cell')} again",
                key="lab failed again",
                on_click=go_on,
                args=(lab, failed),
                kwargs={"again": True},
            )
        if lab.own:
            st.button(
                "Repeat",
                key="lab repeat",
                on_click=begin,
                args=(experiment,),
                help="the same experiment once more, in a new folder",
            )
        st.button(
            "Change …",
            key="lab change",
            on_click=change,
            args=(experiment,),
            help="open the form on these values; nothing starts before you say so",
        )
        if judged.results:
            with st.popover("Save …"):
                draw_export(lab, judged)
    if not lab.own:
        st.caption(
            "This experiment was made elsewhere, so it is only shown. Change opens the form on its values: look at "
            "them, above all at commands, before you start."
        )


def _draw_end(lab: Lab) -> None:
    job = lab.job
    if job is None:
        return
    if job.state is State.FAILED:
        st.error(message(f"It ended: {job.error}"))
        st.caption(
            "What was measured is kept. Change the settings, or resume when the cause is gone."
        )
    elif job.state is State.STOPPED:
        count = len(lab.store.results)
        kept = f"{plural(count, 'cell')} measured, all kept" if count else "no cell was done yet"
        st.warning(f"Stopped: {kept}.")
