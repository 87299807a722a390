"""Isolate: one thing varied at a time, compared with plain decoding, until it is clear what a fault hangs on."""

from __future__ import annotations

import streamlit as st

from engine.isolate.cell import Cell
from engine.isolate.outcome import BROKEN
from workbench import labs, urlstate
from workbench.lab_control import show
from workbench.lab_folders import folder_of, labs_folder
from workbench.lab_form import draw_form
from workbench.lab_words import subject_lines
from workbench.labs import Judged, Lab
from workbench.panes.lab_actions import draw_actions, draw_progress
from workbench.panes.lab_bar import draw_bar
from workbench.panes.lab_cell import draw_cell
from workbench.panes.lab_matrix_pane import draw_matrix
from workbench.panes.lab_plan import draw_plan
from workbench.panes.lab_verdict import draw_proof, draw_verdict
from workbench.polling import draw_again_every
from workbench.tokens import for_markdown, legible, message, shorten

POLL = 1.0  # seconds


def draw_isolate() -> None:
    """The whole page below the header."""
    key = urlstate.get("lab") or None
    draw_bar(key)
    if key is None:
        _draw_new()
        return
    try:
        lab = labs.store().open(folder_of(key))
    except (ValueError, OSError) as error:
        st.warning(message(f"{shorten(key, 200)} cannot be shown: {_reason(error)}"))
        st.caption("Pick another experiment above, or make a new one.")
        st.button(
            "New experiment", key="lab new instead", type="primary", on_click=show, args=(None,)
        )
        return
    if lab.running:
        draw_again_every(POLL, "lab", lambda: _follow(lab))
    else:
        _draw_lab(lab)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or shorten(str(error), 300)


def _draw_new() -> None:
    st.info(
        "Which of budget, top-k, CUDA graphs, batch size and prompt does a fault hang on? Every combination is decoded "
        "twice and compared with plain decoding, token by token; the verdict names the one that decides, and the pairs "
        "of cells that prove it appear here."
    )
    left, right = st.columns(2, gap="large")
    experiment = draw_form(left, right)
    with right:
        if experiment is not None:
            draw_plan(experiment)
        st.caption(f"Experiments are kept in {for_markdown(str(labs_folder()))}")


def _follow(lab: Lab) -> None:
    """Redraws itself while it is measured, the whole page when it ends."""
    if not lab.running:
        st.rerun(scope="app")
        return
    _draw_lab(lab)


def _draw_lab(lab: Lab) -> None:
    judged = lab.judged()
    draw_verdict(lab, judged)
    if lab.running:
        draw_progress(lab)
    else:
        draw_actions(lab, judged)
    cell = selected(lab, judged)
    left, right = st.columns([3, 2], gap="large")
    with left:
        draw_matrix(lab, judged, cell)
    with right:
        draw_proof(lab, judged)
    if cell is None:
        st.caption("A click on a cell shows its texts beside plain decoding's.")
    else:
        draw_cell(lab, judged, cell)
    with st.expander("What it was tried on", key="lab subject lines"):
        lines = subject_lines(lab.store.experiment)
        st.code("\n".join(map(legible, lines)), language=None, wrap_lines=True)


def selected(lab: Lab, judged: Judged) -> Cell | None:
    """The cell that the URL names; else the first one of the proof, or the first that is not right."""
    asked = urlstate.get("cell")
    if asked:
        known = (*lab.store.experiment.matrix, *judged.results, *judged.verdict.missing)
        return next((cell for cell in known if cell.key == asked), None)
    if lab.running:
        return None
    proof = [pair.broken for pair in judged.verdict.proof]
    broken = [cell for cell, outcome in judged.outcomes.items() if outcome in BROKEN]
    return next(iter((*proof, *broken, *judged.results)), None)
