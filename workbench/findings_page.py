"""Findings: grouped by cause, most harmful first, each with its consequences and its steps."""

from __future__ import annotations

import json

import streamlit as st

from workbench import urlstate
from workbench.causes import CauseGroup, group_causes
from workbench.cells import cells_of
from workbench.current import Current, current
from workbench.figures.strip import step_strip
from workbench.glossary import explain
from workbench.loaded import Loaded
from workbench.outcome import Outcome, mark
from workbench.pages_folder import INSPECTOR, RUN, link, open_page
from workbench.panes.explanation import draw_explanation
from workbench.panes.finding_box import draw_finding
from workbench.panes.picking import draw
from workbench.selection import go_to
from workbench.tokens import message
from workbench.traces import safe_name
from workbench.verdict import sentence

KINDS = ("everything", "fault", "latent", "near-tie")
LISTED = 200  # findings of one cause


def draw_findings() -> None:
    """The whole page below the header."""
    now = current()
    if now.loaded is None or now.selection is None:
        return
    groups = group_causes(now.loaded.report.findings)
    shown = _filtered(groups)
    _toolbar(now, groups, shown)
    if not groups:
        _draw_clean(now.loaded)
    elif not shown:
        st.info("No finding matches the filter; choose “everything” to see all.")
    for number, group in enumerate(shown):
        _draw_group(now, group, number)
    _draw_skipped(now.loaded)


def _filtered(groups: list[CauseGroup]) -> list[CauseGroup]:
    kind = urlstate.choice("show", KINDS, KINDS[0])
    return [g for g in groups if kind in (KINDS[0], str(g.verdict))]


def _toolbar(now: Current, groups: list[CauseGroup], shown: list[CauseGroup]) -> None:
    assert now.loaded is not None
    assert now.entry is not None
    with st.container(horizontal=True, vertical_alignment="center"):
        st.segmented_control(
            "show",
            KINDS,
            label_visibility="collapsed",
            required=True,
            **urlstate.widget("show", urlstate.choice("show", KINDS, KINDS[0])),
        )
        st.caption(f"{len(shown)} of {len(groups)} causes", help=explain("cause"))
        report = now.loaded.report
        st.download_button(
            "Export as JSON lines",
            data=lambda: "\n".join(
                json.dumps(f.to_json(), ensure_ascii=False) for f in report.findings
            ),
            file_name=f"{safe_name(now.entry.key)}-findings.jsonl",
            mime="application/x-ndjson",
            disabled=not report.findings,
            help="one finding a line, as `ddtree check --format json` prints them",
        )


def _draw_clean(loaded: Loaded) -> None:
    st.info(
        f"Nothing was found: {len(loaded.report.checks)} checks ran over {loaded.report.steps} steps "
        f"({', '.join(loaded.report.checks)}). A run with an injected fault would fill this page."
    )
    link(RUN, "Make a run with a fault")


def _draw_group(now: Current, group: CauseGroup, number: int) -> None:
    assert now.loaded is not None
    assert now.selection is not None
    sign = f":red[{mark(Outcome.FAULT).glyph}] " if group.verdict == "fault" else ""
    title = f"{sign}**{message(group.title)}** · {group.check} {group.name}"
    with st.expander(title, expanded=number == 0):
        first = group.findings[0]
        context = None
        if first.step is not None and first.rank is not None:
            context = now.loaded.context(first.step, first.rank)
        cells = None if context is None else cells_of(first, context)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(message(sentence(first, cells)))
            if st.button("Go to first", key=f"first {number}"):
                go_to(first, rid=cells.request if cells else None)
                open_page(INSPECTOR)
        if first.hint:
            st.markdown(f"**Hint:** {message(first.hint)}")
        draw_explanation(first.check, first.diagnosis or first.verdict)
        bars = now.loaded.bars(first.rank or 0)
        faulty = set(group.steps)
        own = [
            type(bar)(bar.step, bar.accept_length, bar.requests, int(bar.step in faulty))
            for bar in bars
        ]
        st.caption(f"found in {len(group.steps)} of {len(bars)} steps; a click goes there")
        figure = step_strip(own, now.palette, now.selection.step)
        draw(
            figure,
            f"strip {number}",
            "steps with this finding",
            lambda step: urlstate.put(step=step),
        )
        _draw_members(group, number)


def _draw_members(group: CauseGroup, number: int) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown(f"**{len(group.findings)} findings of this cause**", help=explain("cause"))
        with st.container(height=220, key=f"members {number}"):
            for finding in group.findings[:LISTED]:
                st.markdown(message(sentence(finding)))
    with right:
        st.markdown(f"**{len(group.consequences)} consequences**", help=explain("consequence"))
        with st.container(height=220, key=f"consequences {number}"):
            if not group.consequences:
                st.caption("Nothing else follows from this cause.")
            for finding in group.consequences[:LISTED]:
                draw_finding(finding)


def _draw_skipped(loaded: Loaded) -> None:
    skipped = loaded.report.skipped
    if skipped:
        with st.expander(f"{len(skipped)} checks lacked inputs"):
            for finding in skipped:
                st.markdown(message(finding.message))
