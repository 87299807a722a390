"""What every figure shares: margins, fonts, hover, and selection that leaves the marks as they are."""

from __future__ import annotations

from typing import Any

import pandas  # noqa: F401  # whole before the first figure: Plotly uses it half imported by another session's table
import plotly.graph_objects as go

from workbench.theme import MONO, Palette

CONFIG: dict[str, Any] = {"displaylogo": False, "showSendToCloud": False, "displayModeBar": False}


def blank(palette: Palette, height: int, **margins: int) -> go.Figure:
    """A figure without axes, legend or title."""
    margin = {"l": 8, "r": 8, "t": 8, "b": 8, **margins}
    figure = go.Figure()
    figure.update_layout(
        height=height,
        margin=margin,
        paper_bgcolor=palette.background,
        plot_bgcolor=palette.background,
        font={"family": MONO, "size": 12, "color": palette.ink},
        hoverlabel={
            "font": {"family": MONO, "size": 12, "color": palette.ink},
            "bgcolor": palette.hidden,
            "bordercolor": palette.muted,
            "align": "left",
        },
        showlegend=False,
        hovermode="closest",
        dragmode=False,
        clickmode="event+select",
    )
    hide = {
        "showgrid": False,
        "zeroline": False,
        "showticklabels": False,
        "fixedrange": True,
        "ticks": "",
    }
    figure.update_xaxes(**hide)
    figure.update_yaxes(**hide)
    return figure


def mark_step(figure: go.Figure, palette: Palette, current: int | None) -> None:
    """Name the current step above a strip over steps."""
    if current is not None:
        figure.add_annotation(
            x=current,
            y=1.0,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            text=f"▼ step {current}",
            font={"size": 11, "color": palette.selected},
        )


def unchanged_by_selection(opacity: float = 1.0) -> dict[str, Any]:
    """Plotly dims what is not selected; the app draws its own ring instead."""
    same = {"marker": {"opacity": opacity}}
    return {"selected": same, "unselected": same}


def discrete(colours: list[str]) -> dict[str, Any]:
    """Heatmap arguments that give code ``k`` the k-th colour."""
    count = len(colours)
    scale = [[edge / count, colour] for k, colour in enumerate(colours) for edge in (k, k + 1)]
    return {"colorscale": scale, "zmin": -0.5, "zmax": count - 0.5, "showscale": False}


def mix(start: str, end: str, share: float) -> str:
    """A colour between two: 0 the first, 1 the second."""
    pairs = [(int(start[k : k + 2], 16), int(end[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)
