"""Acceptance: the path that was accepted, the one that plain decoding's choices give, and each
node's numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from workbench.figures.acceptance import acceptance_paths
from workbench.glossary import explain
from workbench.outcome import Outcome, mark
from workbench.panes.picking import draw
from workbench.selection import pick_node
from workbench.stepview import StepView
from workbench.theme import Palette


def draw_acceptance(view: StepView, palette: Palette, node: int | None) -> None:
    """Both paths, and the reference in one line."""
    st.markdown("**Acceptance**", help=explain("accepted length"))
    draw(acceptance_paths(view, palette, node), "acceptance", "accepted paths", pick_node)
    st.caption(reference_text(view))


def draw_node_table(view: StepView) -> None:
    """Each node's numbers; a row that is picked is selected everywhere."""
    st.markdown(
        "**Nodes**", help="what the target chose at each node, and what the drafter thought of it"
    )
    event_key = f"nodes {view.step.step} {view.request}"
    rows = node_table(view)
    st.dataframe(
        rows,
        key=event_key,
        height=330,
        hide_index=True,
        on_select=lambda: _picked_row(event_key),
        selection_mode="single-row",
        column_config={
            "node": st.column_config.NumberColumn(width=55),
            "": st.column_config.TextColumn(width=35),
            "margin": st.column_config.NumberColumn(
                "margin, logits", help=explain("margin"), width=85
            ),
            "log-probability": st.column_config.NumberColumn(
                "log-prob.", help=explain("log-probability"), width=70
            ),
            "drafter's rank": st.column_config.NumberColumn(
                "drafter rank", help=explain("drafter's rank"), width=80
            ),
            "logit difference": st.column_config.NumberColumn(
                "logit diff.",
                help="largest difference of the row's logits from the dense reference",
                width=70,
            ),
        },
    )


def _picked_row(key: str) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        pick_node(int(rows[0]))


def changed_rows(view: StepView) -> list[int]:
    """Nodes whose choice is not plain decoding's."""
    choices = ((n, view.choice(n), view.reference_choice(n)) for n in range(view.num_nodes))
    return [n for n, mine, theirs in choices if None not in (mine, theirs) and mine != theirs]


def reference_text(view: StepView) -> str:
    """What the reference says about the whole request, numbers with their other side."""
    if view.step.reference.target_predict is None:
        return (
            "Plain decoding's choices were not recorded (reference.target_predict): "
            "record a run with its reference on."
        )
    changed = changed_rows(view)
    text = f"the choice differs from plain decoding's in {len(changed)} of {view.num_nodes} rows"
    text += f" (first: node {changed[0]})" if changed else ""
    ours, theirs = view.accepted, view.reference_accepted
    if ours is not None and theirs is not None:
        text += f"; accepted {len(ours)} nodes, plain decoding's choices accept {len(theirs)}"
    diffs = [view.logit_diff(n) for n in range(view.num_nodes)]
    known = [d for d in diffs if d is not None and not np.isnan(d)]
    if known:
        text += f"; largest logit difference {max(known):.3g} (node {diffs.index(max(known))})"
    return text


def node_table(view: StepView) -> dict[str, list[Any]]:
    """One row a node; a column that was not recorded is left out."""
    nodes = range(view.num_nodes)
    changed = set(changed_rows(view))
    cross = mark(Outcome.FAULT).glyph
    table: dict[str, list[Any]] = {
        "node": list(nodes),
        "": [mark(view.outcome(n)).glyph for n in nodes],
        "token": [view.text_of(int(view.tree.tokens[n])) for n in nodes],
        "target's choice": [
            f"{cross} {view.text_of(view.choice(n))}"
            if n in changed
            else view.text_of(view.choice(n))
            for n in nodes
        ],
        "plain decoding's": [view.text_of(view.reference_choice(n)) for n in nodes],
        "margin": [_rounded(view.margin(n)) for n in nodes],
        "log-probability": [_rounded(view.log_weight(n)) for n in nodes],
        "drafter's rank": [view.drafter_rank(n) for n in nodes],
        "logit difference": [_rounded(view.logit_diff(n)) for n in nodes],
    }
    missing = (None, "?")
    return {name: values for name, values in table.items() if any(v not in missing for v in values)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
