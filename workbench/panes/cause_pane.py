"""One cause of the findings page: what it is, what it means, where it was found, what follows from it.

Tables and one strip, never a widget a finding; long tables end with a sentence about the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from engine.checks.finding import Finding
from workbench.causes import CauseGroup
from workbench.cells import cells_of
from workbench.current import Current
from workbench.figures.lane_strip import lane_strip
from workbench.glossary import explain
from workbench.lanes import bin_width, rank_lanes
from workbench.loaded import Loaded
from workbench.outcome import Outcome, mark
from workbench.pages_folder import INSPECTOR, ask_for
from workbench.panes.explanation import draw_explanation
from workbench.panes.picking import draw
from workbench.selection import go_to
from workbench.tallies import Tally, by_rank, by_request, by_step
from workbench.tokens import legible, message, shorten, visible
from workbench.verdict import EFFECTS, plural, sentence

LISTED = 200  # rows of a table
COUNTED = 100
WIDTHS = {"step": 70, "rank": 60, "request": 110, "node": 60, "differing": 80, "message": 900}
ROW = 27  # pixels
TALLEST, SHORTEST = 10, 5  # rows of a table of findings, of counts; then it scrolls
TALLY_WIDTH = 430


def draw_cause(now: Current, group: CauseGroup, *, expanded: bool) -> None:
    """An expander; what is in it is made when it is opened."""
    assert now.loaded is not None
    sign = f":red[{mark(Outcome.FAULT).glyph}] " if group.verdict == "fault" else ""
    title = f"{sign}**{message(group.title_among(now.loaded.ranks))}** · {group.check} {group.name}"
    key = f"cause {group.check} {group.diagnosis} {group.verdict}"
    box = st.expander(title, expanded=expanded, key=key, on_change="rerun")
    if box.open:
        with box:
            _draw_inside(now, now.loaded, group, key)


def visit(loaded: Loaded, finding: Finding) -> None:
    """Select the very cell of a finding and open the inspector on it."""
    rid, node = loaded.place_of(finding)
    go_to(finding, rid=rid, node=node)
    ask_for(INSPECTOR)


def _draw_inside(now: Current, loaded: Loaded, group: CauseGroup, key: str) -> None:
    first = group.first
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(message(_sentence(loaded, first)))
        st.button("Go to first", key=f"first {key}", on_click=visit, args=(loaded, first))
    if first.hint and group.findings:
        st.markdown(f"**Hint:** {message(first.hint)}")
    draw_explanation(group.check, group.diagnosis)
    _draw_strip(now, loaded, group, key)
    _draw_counts(loaded, group, key, now.palette.muted)
    if group.findings:
        count = plural(len(group.findings), "finding")
        st.markdown(f"**{count} of this cause** · a click goes there", help=explain("cause"))
        _draw_table(loaded, group.findings, f"findings {key}", _own_columns)
    if group.consequences:
        _draw_consequences(loaded, group, key)
    else:
        st.caption("Nothing else follows from this cause.")


def _sentence(loaded: Loaded, finding: Finding) -> str:
    if finding.step is None or finding.rank is None:
        return sentence(finding)
    return sentence(finding, cells_of(finding, loaded.context(finding.step, finding.rank)))


def _draw_strip(now: Current, loaded: Loaded, group: CauseGroup, key: str) -> None:
    steps = (loaded.all_steps[0], loaded.all_steps[-1])
    lanes, targets = rank_lanes(group, steps, loaded.ranks)
    shared = bin_width(steps, len(lanes))
    wide = f", {shared} steps a mark" if shared > 1 else ""
    st.caption(
        f"found in {len(group.steps):,} of {plural(len(loaded.all_steps), 'step')}{wide}; a click goes to the cell"
    )
    current = now.selection.step if now.selection else None
    draw(
        lane_strip(lanes, steps, now.palette, current),
        f"strip {key}",
        "steps with this cause, rank by rank",
        lambda number: visit(loaded, targets[number]),
    )


def _draw_counts(loaded: Loaded, group: CauseGroup, key: str, grey: str) -> None:
    """Side by side: a table for each of rank, request and step where there is something to compare."""
    members = (group.findings, group.consequences)
    tables = [
        ("rank", by_rank(*members), loaded.ranks),
        ("request", by_request(*members, loaded.live), loaded.requests),
        ("step", by_step(*members), loaded.all_steps),
    ]
    said = [f"all in {n} {t[0].name}" for n, t, others in tables if len(t) == 1 < len(others)]
    several = [(noun, tallies) for noun, tallies, _ in tables if len(tallies) > 1]
    if each := alike(tables[-1][1]):
        several, said = several[:-1], [*said, each]
    if said:
        st.caption(message(" · ".join(said)))
    if several:
        with st.container(horizontal=True, gap="medium"):
            for noun, tallies in several:
                with st.container(width=TALLY_WIDTH):
                    _draw_tally(noun, tallies, f"{noun} counts {key}", grey)


def alike(steps: Sequence[Tally]) -> str:
    """``1 finding in each of 12 steps``; nothing where they differ, or there is one."""
    counts = {(tally.findings, tally.consequences) for tally in steps}
    if len(steps) < 2 or len(counts) > 1:
        return ""
    findings, consequences = next(iter(counts))
    words = [plural(findings, "finding")] if findings else []
    words += [plural(consequences, "consequence")] if consequences else []
    return f"{' and '.join(words)} in each of {len(steps):,} steps"


def _draw_tally(noun: str, tallies: Sequence[Tally], key: str, grey: str) -> None:
    shown = tallies[:COUNTED]
    table: dict[str, list[Any]] = {
        noun: [visible(t.name) for t in shown],
        "findings": [t.findings for t in shown],
    }
    if any(t.consequences for t in tallies):
        table["consequences"] = [t.consequences for t in shown]
    if noun != "step":
        table["steps"] = [len(t.steps) for t in shown]
        table["first step"] = [t.first_step for t in shown]
    most = max((t.findings for t in shown), default=1) or 1
    bar = st.column_config.ProgressColumn("findings", format="%d", max_value=most, color=grey)
    st.dataframe(
        table,
        key=key,
        hide_index=True,
        column_config={"findings": bar},
        row_height=ROW,
        height=_height(len(shown), SHORTEST),
    )
    if len(tallies) > COUNTED:
        st.caption(f"{len(tallies) - COUNTED:,} more {noun}s, export for all")


def _draw_consequences(loaded: Loaded, group: CauseGroup, key: str) -> None:
    kinds = Counter(f"{f.check} {f.name}" for f in group.consequences)
    names = ", ".join(f"{name} {count:,}" for name, count in kinds.most_common(4))
    more = f", {len(kinds) - 4} more checks" if len(kinds) > 4 else ""
    title = f"**{plural(len(group.consequences), 'consequence')}** · {message(names)}{more}"
    box = st.expander(title, key=f"folded {key}", expanded=not group.findings, on_change="rerun")
    if box.open:
        with box:
            st.caption(
                "They vanish when the cause is put right; a click goes there",
                help=explain("consequence"),
            )
            _draw_table(loaded, group.consequences, f"consequences {key}", _follower_columns)


Columns = Callable[[Sequence[Finding]], dict[str, list[Any]]]


def _draw_table(loaded: Loaded, findings: Sequence[Finding], key: str, columns: Columns) -> None:
    shown = findings[:LISTED]
    place: dict[str, list[Any]] = {"step": [f.step for f in shown]}
    if len(loaded.ranks) > 1:
        place["rank"] = [f.rank for f in shown]
    place["request"] = ["all" if f.request is None else visible(f.request) for f in shown]
    st.dataframe(
        {**place, **columns(shown)},
        key=key,
        row_height=ROW,
        height=_height(len(shown), TALLEST),
        hide_index=True,
        column_config={name: st.column_config.Column(width=wide) for name, wide in WIDTHS.items()},
        on_select=lambda: cell_picked(st.session_state.get(key), loaded, shown),
        selection_mode="single-cell",
    )
    if len(findings) > LISTED:
        st.caption(f"{len(findings) - LISTED:,} more, export for all")


def cell_picked(event: Any, loaded: Loaded, shown: Sequence[Finding]) -> None:
    """Go to the finding of the row that was clicked."""
    cells = event["selection"]["cells"] if event else []
    if cells and cells[0][0] < len(shown):
        visit(loaded, shown[cells[0][0]])


def _own_columns(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    return {
        "node": [f.where.node for f in findings],
        "differing": [f.count for f in findings],
        "message": [_plain(f.message) for f in findings],
    }


def _follower_columns(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    return {
        "check": [f"{f.check} {f.name}" for f in findings],
        "diagnosis": [f.diagnosis or str(f.verdict) for f in findings],
        "effect": [EFFECTS[f.effect] for f in findings],
        "follows from": [f.consequence_of for f in findings],
        "message": [_plain(f.message) for f in findings],
    }


def _plain(text: str) -> str:
    """Text of a table's cell, which reads no Markdown."""
    return shorten(legible(text.replace("`", "")), 300)


def _height(rows: int, tallest: int) -> int:
    return ROW * (min(rows, tallest) + 1) + 3
