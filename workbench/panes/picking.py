"""A chart in which a node can be picked: the pick goes into the selection, never into the chart's
own state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from workbench.figures.base import CONFIG


def draw(
    figure: go.Figure, key: str, alt: str, on_pick: Callable[[int], None] | None = None
) -> None:
    """Draw a figure. ``on_pick`` is called with the ``customdata`` of the point that was clicked."""
    if on_pick is None:
        st.plotly_chart(figure, key=key, theme=None, config=CONFIG, alt=alt)
        return
    st.plotly_chart(
        figure,
        key=key,
        theme=None,
        config=CONFIG,
        alt=alt,
        on_select=lambda: picked(st.session_state.get(key), on_pick),
        selection_mode="points",
    )


def picked(event: Any, on_pick: Callable[[int], None]) -> None:
    """Hand on the number of the first point of a selection event; negative numbers are nothing to
    pick.
    """
    points = event["selection"]["points"] if event else []
    value = points[0].get("customdata") if points else None
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, int | float) and value >= 0:
        on_pick(int(value))
