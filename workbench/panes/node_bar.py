"""The selected node in one line, every number with its other side, and the findings at it."""

from __future__ import annotations

import streamlit as st

from workbench.figures.offsets import row_spans
from workbench.outcome import Outcome, mark
from workbench.panes.finding_box import draw_finding
from workbench.selection import pick_node
from workbench.stepview import StepView
from workbench.tokens import as_code

CROSS = mark(Outcome.FAULT).glyph


def draw_node_bar(view: StepView, node: int | None) -> None:
    """One bordered line at the bottom of the inspector."""
    with st.container(border=True, key="node-bar"):
        if node is None:
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(
                    "No node is selected: click one in the tree, the mask, the ruler or the table."
                )
                st.button("Select the root", on_click=pick_node, args=(0,))
            return
        st.markdown(" · ".join([_title(view, node), *(f"{k} {v}" for k, v in facts(view, node))]))
        _findings(view, node)


def _findings(view: StepView, node: int) -> None:
    here = view.findings_at(node)
    if not here:
        st.caption("no finding names this row")
        return
    with st.expander(f"{len(here)} finding{'s' * (len(here) > 1)} at this row"):
        for finding in here:
            draw_finding(finding)


def _title(view: StepView, node: int) -> str:
    if node >= view.num_nodes:
        return f"**row {node}** {mark(Outcome.PADDING).glyph} padding, no node"
    glyph = mark(view.outcome(node)).glyph
    text = as_code(view.text_of(int(view.tree.tokens[node])))
    return f"**node {node}** {glyph} {text} {view.outcome(node)}"


def facts(view: StepView, node: int) -> list[tuple[str, str]]:
    """``name, value`` pairs as Markdown."""
    found: list[tuple[str, str]] = []
    inputs, row = view.step.inputs, view.first_row + node
    if node < view.num_nodes:
        found.append(("depth", as_code(str(int(view.tree.depths[node])))))
        found.append(("parent", as_code(str(int(view.tree.parents[node])))))
        weight = view.log_weight(node)
        if weight is not None:
            found.append(("log-probability", as_code(f"{weight:.2f}")))
        if inputs.positions is not None and row < len(inputs.positions):
            should = int(view.oracle.positions(view.request)[node])
            found.append(("position", both(str(int(inputs.positions[row])), str(should))))
    if inputs.out_cache_loc is not None and row < len(inputs.out_cache_loc):
        found.append(("slot", as_code(str(int(inputs.out_cache_loc[row])))))
    used, should_be = row_spans(view, node)
    if should_be is not None:
        span = f"{should_be.start} – {should_be.stop - 1}"
        mine = (
            "none: no program covers this row"
            if used is None
            else f"{used.start} – {used.stop - 1}"
        )
        found.append((f"row {row} cells", both(mine, span)))
    return found


def both(found: str, should: str) -> str:
    """``47 (should be 47)``, with the fault's sign where they differ."""
    sign = "" if found == should else f":red[{CROSS}] "
    return f"{sign}{as_code(found)} (should be {as_code(should)})"
