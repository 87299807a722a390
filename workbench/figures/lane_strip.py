"""All steps in lanes, one a cause or a rank: how often something was found where; a click goes there.

Covered: any number of steps (neighbours share a mark, see :mod:`workbench.lanes`). Not covered: what a mark stands for;
its number is handed back as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from workbench.figures.base import blank, mark_step, unchanged_by_selection
from workbench.outcome import Outcome, mark
from workbench.theme import Palette
from workbench.tokens import for_plotly, shorten

LANE = 30  # pixels
LETTER = 6.7  # pixels of a label's letter
LABEL = 30  # letters
FEWEST = 20  # steps that the axis makes room for, so that few steps make no broad bars
TICKS = 14


@dataclass(frozen=True)
class LaneMark:
    """What was found in some neighbouring steps of a lane."""

    start: int  # first step
    stop: int  # past the last one
    findings: int
    consequences: int
    target: int  # what a click hands back
    hover: tuple[str, ...] = ()  # lines


@dataclass(frozen=True)
class Lane:
    """One cause or rank."""

    label: str
    is_fault: bool
    marks: tuple[LaneMark, ...]


def lane_strip(
    lanes: Sequence[Lane], steps: tuple[int, int], palette: Palette, current: int | None = None
) -> go.Figure:
    """``steps``: the first and last recorded one. ``current``: the selected one."""
    letters = max((min(len(lane.label), LABEL) for lane in lanes), default=0)
    left = 8 + (round(LETTER * letters) + 8 if letters else 0)
    figure = blank(palette, len(lanes) * LANE + 42, l=left, r=8, t=20, b=22)
    floors = [len(lanes) - 1 - k for k in range(len(lanes))]  # the first lane on top
    placed = [
        (mark_, floor, lane.is_fault)
        for lane, floor in zip(lanes, floors, strict=True)
        for mark_ in lane.marks
    ]
    for floor in floors:
        figure.add_shape(
            type="line",
            x0=steps[0] - 0.5,
            x1=steps[1] + 0.5,
            y0=floor,
            y1=floor,
            line={"color": palette.grid, "width": 1},
            layer="below",
        )
    _counts(figure, placed, palette)
    _places_to_click(figure, placed)
    _signs(figure, [p for p in placed if p[0].findings], palette)
    _axes(figure, lanes, floors, steps, palette, current)
    return figure


Placed = tuple[LaneMark, int, bool]  # mark, floor of its lane, whether it is a fault


def _middle(mark_: LaneMark) -> float:
    return (mark_.start + mark_.stop - 1) / 2


def _width(mark_: LaneMark) -> float:
    return (mark_.stop - mark_.start) * 0.82


def _counts(figure: go.Figure, placed: Sequence[Placed], palette: Palette) -> None:
    """Bars as high as there are findings; a low faint one where there are consequences alone."""
    most = max((m.findings for m, _, _ in placed), default=1) or 1
    figure.add_bar(
        name="counts",
        x=[_middle(m) for m, _, _ in placed],
        y=[0.1 + 0.42 * m.findings / most if m.findings else 0.07 for m, _, _ in placed],
        base=[floor for _, floor, _ in placed],
        width=[_width(m) for m, _, _ in placed],
        marker={"color": palette.folded, "line": {"width": 0}},
        hoverinfo="skip",
        **unchanged_by_selection(),
    )


def _places_to_click(figure: go.Figure, placed: Sequence[Placed]) -> None:
    """Unseen bars of a lane's whole height, so that a small mark is easy to hit."""
    figure.add_bar(
        name="places",
        x=[_middle(m) for m, _, _ in placed],
        y=[0.95] * len(placed),
        base=[floor for _, floor, _ in placed],
        width=[m.stop - m.start for m, _, _ in placed],
        marker={"opacity": 0},
        hovertext=[_hover(m) for m, _, _ in placed],
        hoverinfo="text",
        customdata=[m.target for m, _, _ in placed],
        **unchanged_by_selection(opacity=0),
    )
    figure.update_layout(barmode="overlay")


def _signs(figure: go.Figure, placed: Sequence[Placed], palette: Palette) -> None:
    """A fault's ✖, or a dot for what is none."""
    look, many = mark(Outcome.FAULT), len(placed) > 120
    for name, is_fault, symbol, colour in (
        ("faults", True, look.symbol, palette.fault),
        ("others", False, "circle", palette.muted),
    ):
        own = [(m, floor) for m, floor, fault in placed if fault is is_fault]
        figure.add_scatter(
            name=name,
            x=[_middle(m) for m, _ in own],
            y=[floor + 0.74 for _, floor in own],
            mode="markers",
            marker={"symbol": symbol, "size": 5 if many else 7, "color": colour},
            hovertext=[_hover(m) for m, _ in own],
            hoverinfo="text",
            customdata=[m.target for m, _ in own],
            **unchanged_by_selection(),
        )


def _hover(mark_: LaneMark) -> str:
    return "<br>".join(map(for_plotly, mark_.hover))


def round_up(number: int) -> int:
    """The next of 1, 2, 5, 10, 20, 50 …"""
    power = 10 ** max(len(str(number)) - 1, 0)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= number)


def _axes(
    figure: go.Figure,
    lanes: Sequence[Lane],
    floors: Sequence[int],
    steps: tuple[int, int],
    palette: Palette,
    current: int | None,
) -> None:
    first, last = steps
    apart = round_up(-(-(last - first + 1) // TICKS))
    figure.update_xaxes(
        range=[first - 0.7, max(last, first + FEWEST) + 0.7],
        showticklabels=True,
        tickfont={"size": 10, "color": palette.muted},
        tickmode="array",
        tickvals=[step for step in range(first - first % apart, last + 1, apart) if step >= first],
        tickformat="d",
    )
    figure.update_yaxes(
        range=[0, len(lanes)],
        showticklabels=True,
        tickfont={"size": 11, "color": palette.ink},
        tickmode="array",
        tickvals=[floor + 0.4 for floor in floors],
        ticktext=[f"{for_plotly(shorten(lane.label, LABEL))}  " for lane in lanes],
    )
    mark_step(figure, palette, current)
