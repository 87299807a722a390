"""Findings: grouped by cause, most harmful first, each with its consequences and its steps.

Covered: the filter, the strip over all steps, the export of what is shown, the list of causes. Not covered: what one
cause shows when it is opened (:mod:`workbench.panes.cause_pane`).
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from engine.checks.finding import Finding
from engine.trace.findings_json import finding_to_line
from workbench.causes import CauseGroup
from workbench.current import Current, current
from workbench.figures.lane_strip import lane_strip
from workbench.finding_filter import FindingFilter
from workbench.glossary import explain
from workbench.lanes import MOST_LANES, bin_width, cause_lanes
from workbench.loaded import Loaded
from workbench.pages_folder import RUN, link
from workbench.panes.cause_pane import draw_cause, visit
from workbench.panes.filter_bar import asked, clear, draw_filter, draw_verdicts, words_of
from workbench.panes.picking import draw
from workbench.tokens import for_markdown, message
from workbench.traces import safe_name
from workbench.verdict import plural


def draw_findings() -> None:
    """The whole page below the header."""
    now = current()
    if now.loaded is None or now.selection is None:
        return
    if now.loaded.groups:
        wanted, problem = asked()
        shown = now.loaded.kept(wanted)
        draw_filter(now.loaded, wanted, problem)
        _draw_toolbar(now, now.loaded, wanted, shown)
        if shown:
            _draw_overview(now, now.loaded, shown)
        else:
            _draw_no_match(now.loaded, wanted)
        for number, group in enumerate(shown):
            draw_cause(now, group, expanded=number == 0)
    else:
        _draw_clean(now.loaded)
    _draw_skipped(now.loaded)


def _draw_toolbar(
    now: Current, loaded: Loaded, wanted: FindingFilter, shown: list[CauseGroup]
) -> None:
    assert now.entry is not None
    count = sum(len(g.findings) + len(g.consequences) for g in shown)
    with st.container(horizontal=True, vertical_alignment="center", key="findings-toolbar"):
        draw_verdicts(wanted)
        st.caption(counts_text(loaded, shown, count), help=explain("cause"))
        if not wanted.is_empty and shown:
            st.button("Clear the filter", key="clear filter", on_click=clear)
        st.download_button(
            f"Export {plural(count, 'finding')} as JSON lines",
            data=lambda: exported(loaded, wanted),
            file_name=f"{safe_name(now.entry.key)}-findings.jsonl",
            mime="application/x-ndjson",
            on_click="ignore",
            disabled=not count,
            key="export findings",
            help="what is shown, one finding a line, as `ddtree check --format json` prints them",
        )


def counts_text(loaded: Loaded, shown: Sequence[CauseGroup], count: int) -> str:
    """``2 of 3 causes · 40 of 51 findings, 30 of them consequences``."""
    causes, total = len(loaded.groups), len(loaded.report.findings)
    followers = sum(len(group.consequences) for group in shown)
    parts = plural(causes, "cause") if len(shown) == causes else f"{len(shown)} of {causes} causes"
    found = plural(count, "finding") if count == total else f"{count:,} of {total:,} findings"
    follow = f", {followers:,} of them consequences" if followers else ""
    return f"{parts} · {found}{follow}"


def exported(loaded: Loaded, wanted: FindingFilter) -> str:
    """The findings that are shown, in order of time, one a line."""
    lines = map(finding_to_line, matching(loaded, wanted))
    return "".join(f"{line}\n" for line in lines)


def matching(loaded: Loaded, wanted: FindingFilter) -> list[Finding]:
    """The findings that a filter leaves, in order of time."""
    found = loaded.report.findings
    return [f for f in found if wanted.matches(f, loaded.live(f.step, f.rank))]


def _draw_overview(now: Current, loaded: Loaded, shown: list[CauseGroup]) -> None:
    """Where each cause occurs. One cause alone has the same strip in its own box."""
    if len(shown) < 2:
        return
    steps = (loaded.all_steps[0], loaded.all_steps[-1])
    lanes, targets = cause_lanes(shown, steps, ranks=len(loaded.ranks))
    shared = bin_width(steps, len(lanes))
    parts = [f"where each cause occurs in {plural(len(loaded.all_steps), 'step')}"]
    parts += [f"{len(loaded.ranks)} ranks together"] if len(loaded.ranks) > 1 else []
    parts += [f"{shared} steps a mark"] if shared > 1 else []
    parts += [f"the first {MOST_LANES} causes"] if len(shown) > MOST_LANES else []
    st.caption(f"{' · '.join(parts)} · a click goes to the cell")
    draw(
        lane_strip(lanes, steps, now.palette, now.selection.step if now.selection else None),
        "causes strip",
        "steps of each cause",
        lambda number: visit(loaded, targets[number]),
    )


def _draw_no_match(loaded: Loaded, wanted: FindingFilter) -> None:
    total = plural(len(loaded.report.findings), "finding")
    st.info(for_markdown(f"Nothing matches the filter ({words_of(wanted)}); it hides all {total}."))
    st.button("Clear the filter", key="clear filter", type="primary", on_click=clear)


def _draw_clean(loaded: Loaded) -> None:
    st.info(
        f"Nothing was found: {len(loaded.report.checks)} checks ran over {loaded.report.steps} steps "
        f"({', '.join(loaded.report.checks)}). A run with an injected fault would fill this page."
    )
    link(RUN, "Make a run with a fault")


def _draw_skipped(loaded: Loaded) -> None:
    skipped = loaded.report.skipped
    if skipped:
        with st.expander(f"{len(skipped)} checks lacked inputs"):
            for finding in skipped:
                st.markdown(message(finding.message))
