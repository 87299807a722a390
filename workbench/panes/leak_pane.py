"""Leak mass of the selected step: how much attention goes where it must not, by row, layer and head."""

from __future__ import annotations

from typing import Any

import streamlit as st

from workbench.background import State
from workbench.figures.leak import leak_heatmap
from workbench.glossary import explain
from workbench.loaded import Loaded
from workbench.panes.picking import draw
from workbench.panes.xray_pane import follow
from workbench.stepview import StepView
from workbench.theme import Palette
from workbench.tokens import for_markdown, message
from workbench.verdict import plural
from workbench.xrays import can_leak, leak_job, start_leak


def draw_leak(loaded: Loaded, view: StepView, palette: Palette) -> None:
    """The button, and what came of it; nothing where the recording cannot be run again."""
    if not can_leak(loaded):
        return
    job = leak_job(loaded, view.context)
    if job is None or job.state in (State.STOPPED, State.FAILED):
        st.button(
            "Leak mass of this step",
            key="leak",
            on_click=start_leak,
            args=(loaded, view.context),
            help=explain("leak mass"),
        )
    if job is None:
        return
    if job.state is State.RUNNING:
        follow(job, "stop leak")
    elif job.state is State.FAILED:
        st.warning(message(f"This step cannot be run again: {job.error}"))
    elif job.state is State.FINISHED:
        _draw_report(job.result, view, palette)


def leak_line(report: dict[str, Any], rid: str) -> str:
    """What leaks in one request, in a sentence."""
    rows = [row for row in report["rows"] if row["request"] == rid]
    leaking = [row for row in rows if row["max"] > 0]
    if not leaking:
        return "Leak mass: exactly 0 in every row, layer and head"
    worst = max(leaking, key=lambda row: row["max"])
    do = "attends to what it must not" if len(leaking) == 1 else "attend to what they must not"
    return (
        f"Leak mass: {plural(len(leaking), 'row')} of {len(rows)} {do}, at most "
        f"{worst['max']:.3f} of a head's attention (row {worst['row']}, layer {worst['layer']}, head {worst['head']}); "
        f"largest logit change {max(row['logit_change'] for row in rows):.3f}"
    )


def leak_table(report: dict[str, Any], rid: str) -> dict[str, list[Any]]:
    """A line a row of the request that leaks or whose logits change."""
    rows = [row for row in report["rows"] if row["request"] == rid]
    rows = [row for row in rows if row["max"] > 0 or row["logit_change"] > 0]
    table: dict[str, list[Any]] = {
        name: [row[name] for row in rows] for name in ("row", "mean", "max", "layer", "head")
    }
    for place in rows[0]["places"] if rows else ():
        table[place] = [row["places"][place] for row in rows]
    table["logit change"] = [row["logit_change"] for row in rows]
    return table


def _draw_report(report: dict[str, Any], view: StepView, palette: Palette) -> None:
    rid = view.record.rid
    st.markdown(for_markdown(leak_line(report, rid)), help=explain("leak mass"))
    table = leak_table(report, rid)
    if not table["row"]:
        return
    with st.expander("by row, layer and head", expanded=False):
        left, right = st.columns([3, 2], gap="medium")
        with left:
            st.caption("shares of a row's attention, means over layers and heads")
            st.dataframe(table, key="leak rows", hide_index=True, height=260)
        with right:
            st.caption("mean over the step's rows, by layer and head")
            draw(
                leak_heatmap(report["by_head"], palette), "leak map", "leak mass by layer and head"
            )
