"""One cell: what it is, what came of it, each request's text beside plain decoding's, what the checks found."""

from __future__ import annotations

from itertools import product

import streamlit as st

from engine.explain import explain_finding
from engine.isolate.cell import Cell
from engine.isolate.measured import Compared, Measured
from engine.isolate.outcome import BROKEN, Outcome
from workbench.lab_control import go_on
from workbench.lab_folders import recording_of
from workbench.lab_texts import marked
from workbench.lab_words import cell_words, facts, request_words
from workbench.labs import Judged, Lab
from workbench.outcome import cell_mark
from workbench.pages_folder import FINDINGS, INSPECTOR, link
from workbench.panes.explanation import check_of, draw_explanation
from workbench.panes.lab_verdict import coloured, glyph_of
from workbench.tokens import as_code, for_markdown, message, shorten

PROMPT, ERROR = 160, 2000  # characters that are shown
FRESH = dict.fromkeys(("rank", "step", "request", "node"))  # of the recording that was open


def draw_cell(lab: Lab, judged: Judged, cell: Cell) -> None:
    """The part below the grid."""
    measured, outcome = judged.results.get(cell), judged.outcomes.get(cell)
    word = "not measured" if outcome is None else f"{coloured(cell, judged)} **{outcome}**"
    with st.container(key="lab-cell", border=True):
        st.markdown(f"**Cell** {for_markdown(cell_words(cell))} · {word}")
        if measured is None:
            _draw_waiting(lab, cell)
            return
        said = " · ".join(facts(measured))
        st.caption(for_markdown(f"{cell_mark(outcome).meaning} · {said}"))
        if measured.error is not None:
            st.error(message(shorten(measured.error, ERROR)))
            if not measured.requests:
                st.caption("Nothing was compared with plain decoding.")
        if outcome in BROKEN and lab.own and not lab.running:
            st.button(
                "Measure it again",
                key="lab again",
                on_click=go_on,
                args=(lab, (cell,)),
                kwargs={"again": True},
                help="the new result counts; the old recording stays",
            )
        own = judged.requests.get(cell, ())
        for number, request in enumerate(measured.requests):
            _draw_request(number, request, own[number] if number < len(own) else None)
        _draw_checks(lab, measured)


def _leading(measured: Measured) -> tuple[str, str | None]:
    """The first check that was at fault, and the diagnosis that is its own."""
    for name, diagnosis in product(measured.findings or (), measured.diagnoses):
        check = check_of(name)
        found = explain_finding(check, diagnosis)
        if found is not None and found.key == diagnosis:
            return check, diagnosis
    return check_of(next(iter(measured.findings or ()), "")), None


def _draw_waiting(lab: Lab, cell: Cell) -> None:
    if lab.now is not None and lab.now.cell == cell:
        st.info("This cell is measured now; its texts appear here when it is done.")
    else:
        st.info("This cell was not measured yet; resume the experiment to fill it.")


def _draw_request(number: int, request: Compared, outcome: Outcome | None) -> None:
    st.markdown(f"request {number}: {as_code(shorten(request.prompt, PROMPT))}")
    words = for_markdown(" · ".join(request_words(request)))
    st.caption(f"{glyph_of(outcome)} {words}" if outcome else words)
    tree, plain = marked(request)
    left, right = st.columns(2)
    with left:
        st.caption(_counted("DDTree", request.tokens))
        st.code(tree, language=None, wrap_lines=True)
    with right:
        st.caption(_counted("plain decoding", request.plain_tokens))
        st.code(plain, language=None, wrap_lines=True)


def _counted(name: str, tokens: tuple[int, ...] | None) -> str:
    return name if tokens is None else f"{name} · {len(tokens)} tokens"


def _draw_checks(lab: Lab, measured: Measured) -> None:
    """Findings by check and diagnosis, and the way to the steps."""
    st.markdown("**What the checks found in its recording**")
    if measured.findings is None and measured.error is not None:
        st.caption("Nothing was checked: it failed before.")
    elif measured.findings is None:
        st.caption("Nothing was checked: the cell was measured without a recording.")
    elif not measured.findings:
        st.caption("Nothing.")
    else:
        if measured.sentence:
            st.markdown(message(shorten(measured.sentence, ERROR)))
        named = [f"{name} {count}" for name, count in measured.findings.items()]
        by = [f"{name} {count}" for name, count in measured.diagnoses.items()]
        st.caption(for_markdown(f"by check: {', '.join(named)} · by diagnosis: {', '.join(by)}"))
        draw_explanation(*_leading(measured))
    path = recording_of(lab.store, measured)
    if path is None:
        if measured.trace:
            st.caption("Its recording is not here.")
        return
    with st.container(horizontal=True):
        link(INSPECTOR, "Step inspector", **{**FRESH, "trace": str(path)})
        link(FINDINGS, "Findings", **{**FRESH, "trace": str(path)})
