"""All steps in one strip: accepted length as bars, faults as ✖; a click goes there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from workbench.figures.base import blank, mark_step, unchanged_by_selection
from workbench.outcome import Outcome, mark
from workbench.theme import Palette


@dataclass(frozen=True)
class StepBar:
    """One step of the strip."""

    step: int
    accept_length: int | None  # summed over the live requests
    requests: int
    faults: int


def step_strip(
    bars: Sequence[StepBar],
    palette: Palette,
    current: int | None,
    *,
    marked: Collection[int] = (),
    left: int = 8,
) -> go.Figure:
    """``marked``: steps to set apart besides those with faults. ``left``: margin, to line up with a figure below."""
    figure = blank(palette, 92, l=left, r=8, t=16, b=20)
    look = mark(Outcome.FAULT)
    known = [bar.accept_length / max(bar.requests, 1) if bar.accept_length else 0 for bar in bars]
    top = max(known, default=1) or 1
    figure.add_bar(
        name="accepted",
        x=[bar.step for bar in bars],
        y=[max(value, top * 0.03) for value in known],
        width=0.82,
        marker={
            "color": [
                palette.selected
                if bar.step == current
                else palette.visible
                if bar.step in marked
                else palette.folded
                for bar in bars
            ],
        },
        hovertext=[_hover(bar) for bar in bars],
        hoverinfo="text",
        customdata=[bar.step for bar in bars],
        **unchanged_by_selection(),
    )
    faulty = [(bar, y) for bar, y in zip(bars, known, strict=True) if bar.faults]
    figure.add_scatter(
        name="faults",
        x=[bar.step for bar, _ in faulty],
        y=[top * 1.2] * len(faulty),
        mode="markers",
        marker={"symbol": look.symbol, "size": 7, "color": palette.fault},
        hovertext=[_hover(bar) for bar, _ in faulty],
        hoverinfo="text",
        customdata=[bar.step for bar, _ in faulty],
        **unchanged_by_selection(),
    )
    _axes(figure, palette, bars, top, current)
    return figure


def _axes(
    figure: go.Figure, palette: Palette, bars: Sequence[StepBar], top: float, current: int | None
) -> None:
    first, last = (bars[0].step, bars[-1].step) if bars else (0, 0)
    figure.update_xaxes(
        range=[first - 0.7, max(last, first + 20) + 0.7],
        showticklabels=True,
        tickfont={"size": 10, "color": palette.muted},
        tickmode="array",
        tickvals=[bar.step for bar in bars[:: max(1, -(-len(bars) // 14))]],
    )
    figure.update_yaxes(range=[0, top * 1.45])
    mark_step(figure, palette, current)


def _hover(bar: StepBar) -> str:
    accepted = (
        "accepted length not recorded"
        if bar.accept_length is None
        else f"accepted {bar.accept_length} tokens in {bar.requests} request(s), root included"
    )
    faults = f"<br>{mark(Outcome.FAULT).glyph} {bar.faults} finding(s)" if bar.faults else ""
    return f"step {bar.step}: {accepted}{faults}"
