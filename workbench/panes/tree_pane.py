"""The draft tree of the selected request."""

from __future__ import annotations

import streamlit as st

from workbench import unusable, urlstate
from workbench.figures.tree import draft_tree
from workbench.outcome import MARKS, Outcome
from workbench.panes.picking import draw
from workbench.selection import pick_node
from workbench.stepview import StepView
from workbench.theme import Palette

LEGEND = (Outcome.ROOT, Outcome.ACCEPTED, Outcome.REJECTED, Outcome.BONUS, Outcome.PADDING)


def draw_tree(view: StepView, palette: Palette, node: int | None) -> None:
    """Title, the tree, its legend."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Draft tree**")
        weights = unusable.switch("weights")
        st.toggle("log-probabilities", **urlstate.widget("weights", weights))
    unusable.say_switch("weights")
    figure = draft_tree(view, palette, node, edge_weights=weights)
    draw(figure, "tree", "draft tree; a click selects a node", pick_node)
    st.caption(" · ".join(f"{MARKS[o].glyph} {o}" for o in LEGEND))
