"""Where attention leaks: the mean share over a step's rows, by layer and head."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from workbench.figures.base import blank
from workbench.theme import Palette

CELL, LEFT, BOTTOM = 11, 44, 34  # pixels
TALLEST = 420


def leak_heatmap(by_head: Sequence[Sequence[float]], palette: Palette) -> go.Figure:
    """``by_head`` [layers][heads], shares of attention 0 … 1; the scale ends at the largest."""
    layers = len(by_head)
    height = min(max(layers * CELL, 60), TALLEST) + BOTTOM + 8
    figure = blank(palette, height, l=LEFT, b=BOTTOM)
    largest = max((share for heads in by_head for share in heads), default=0.0)
    figure.add_heatmap(
        name="leak",
        z=[list(heads) for heads in by_head],
        zmin=0.0,
        zmax=largest or 1.0,
        colorscale=[[0.0, palette.hidden], [1.0, palette.extra]],
        xgap=1,
        ygap=1,
        colorbar={"thickness": 10, "outlinewidth": 0, "tickformat": ".3~f"},
        hovertemplate="layer %{y}, head %{x}: %{z:.4f} of its attention<extra></extra>",
    )
    shown = {"showticklabels": True, "title_standoff": 6}
    figure.update_xaxes(title_text="head", dtick=1, **shown)
    figure.update_yaxes(title_text="layer", autorange="reversed", nticks=8, **shown)
    return figure
