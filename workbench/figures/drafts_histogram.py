"""How many drafts a server's verify steps got right."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from workbench.figures.base import blank, unchanged_by_selection
from workbench.outcome import Outcome
from workbench.theme import Palette


def drafts_histogram(counts: Sequence[int], palette: Palette) -> go.Figure:
    """``counts[k]``: verify steps with k correct drafts."""
    figure = blank(palette, 150, l=44, r=8, t=8, b=34)
    numbers = list(range(len(counts)))
    figure.add_bar(
        x=numbers,
        y=list(counts),
        name="verify steps",
        marker={"color": palette.outcome(Outcome.ACCEPTED)},
        hovertemplate="%{y} verify steps with %{x} correct drafts<extra></extra>",
        **unchanged_by_selection(),
    )
    figure.update_xaxes(
        showticklabels=True, title="correct drafts", dtick=max(1, len(counts) // 16)
    )
    figure.update_yaxes(showticklabels=True, rangemode="tozero", nticks=4)
    return figure
