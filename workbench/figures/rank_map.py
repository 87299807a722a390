"""A whole run, step by depth: how highly the drafter had rated the target's token, and where walks stopped.

A heatmap's cells cannot be picked, so unseen bars lie over them: one an asked cell, and one a step over the depths
that were not asked. Their number grows with the text alone, not with the block size.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import plotly.graph_objects as go

from workbench.figures.base import blank, discrete, mix, unchanged_by_selection
from workbench.figures.lane_strip import round_up
from workbench.ordinals import nth
from workbench.outcome import Outcome
from workbench.theme import Palette
from workbench.tokens import for_plotly, shorten
from workbench.walk_ends import said
from workbench.walks import Walk

FEWEST = 20  # steps that the axis makes room for, so that few steps make no broad cells
TICKS = 14
TALLEST = 340  # pixels of all depths together
LEFT = 62  # pixels of the depths' labels
MOST_NUMBERED, LEAST_CELL = 48, 14  # steps and pixels of a cell: beyond, ranks are colours alone


class Level(IntEnum):
    """Colour of a cell."""

    BEST = 0
    SECOND = 1
    TO_FOURTH = 2
    TO_EIGHTH = 3
    LOWER = 4
    NO_CANDIDATE = 5
    NOT_ASKED = 6


NAMES = {
    Level.BEST: "best",
    Level.SECOND: "2nd",
    Level.TO_FOURTH: "3rd-4th",
    Level.TO_EIGHTH: "5th-8th",
    Level.LOWER: "9th or lower",
    Level.NO_CANDIDATE: "no candidate",
    Level.NOT_ASKED: "not asked",
}


def level_of(rank: int | None) -> Level:
    """Level of the target's token by its rank, 0 best; None: it was not among the candidates."""
    if rank is None:
        return Level.NO_CANDIDATE
    bounds = (0, 1, 3, 7)
    return Level(next((k for k, bound in enumerate(bounds) if rank <= bound), len(bounds)))


def level_grid(walks: Sequence[Walk]) -> list[list[int | None]]:
    """Levels by depth and step, from the first step to the last; None where the request was not in the step."""
    first, depths = walks[0].step, max(walk.depths for walk in walks)
    count = walks[-1].step - first + 1
    grid: list[list[int | None]] = [[None] * count for _ in range(depths)]
    for walk in walks:
        levels = [level_of(rank) for rank in walk.ranks]
        levels += [Level.NOT_ASKED] * (walk.depths - len(levels))
        for depth, level in enumerate(levels):
            grid[depth][walk.step - first] = int(level)
    return grid


def colours(palette: Palette) -> list[str]:
    """Colour of each level: from the accepted token's down to grey, and the bonus token's for what nobody drafted."""
    best = palette.outcome(Outcome.ACCEPTED)
    ramp = [mix(best, palette.folded, share) for share in (0.0, 0.3, 0.55, 0.75, 1.0)]
    return [*ramp, palette.outcome(Outcome.BONUS), palette.hidden]


def rank_map(walks: Sequence[Walk], palette: Palette, current: int | None = None) -> go.Figure:
    """``walks``: of one request, in order of time, at least one. ``current``: the selected step."""
    first, last = walks[0].step, walks[-1].step
    grid = level_grid(walks)
    cell = max(4, min(20, TALLEST // len(grid)))
    figure = blank(palette, cell * len(grid) + 70, l=LEFT, r=8, t=6, b=64)
    gap = 1 if last - first < 200 else 0
    figure.add_heatmap(
        name="ranks",
        z=grid,
        x0=first,
        dx=1,
        y0=1,
        dy=1,
        xgap=gap,
        ygap=1 if cell > 6 else 0,
        hoverinfo="skip",
        **discrete(colours(palette)),
    )
    numbered = last - first < MOST_NUMBERED and cell >= LEAST_CELL
    _stops(figure, walks, palette, cell * 0.8 if numbered else _ring_size(first, last, cell))
    if numbered:
        _numbers(figure, walks, palette)
    _places_to_click(figure, walks)
    if current is not None:
        figure.add_shape(
            type="rect",
            x0=current - 0.5,
            x1=current + 0.5,
            y0=0.5,
            y1=len(grid) + 0.5,
            line={"color": palette.selected, "width": 2},
        )
    _legend(figure, palette)
    _axes(figure, palette, first, last, len(grid), cell)
    return figure


def _ring(palette: Palette, size: float) -> dict[str, object]:
    return {
        "symbol": "circle",
        "size": size,
        "color": palette.background,
        "line": {"color": palette.ink, "width": 1.5 if size > 5 else 1},
    }


def _ring_size(first: int, last: int, cell: int) -> float:
    return max(3, min(9, cell * 0.5, 500 / max(last - first + 1, FEWEST)))


def _stops(figure: go.Figure, walks: Sequence[Walk], palette: Palette, size: float) -> None:
    stopped = [walk for walk in walks if walk.stopped is not None]
    figure.add_scatter(
        name="stops",
        x=[walk.step for walk in stopped],
        y=[walk.stopped for walk in stopped],
        mode="markers",
        marker=_ring(palette, size),
        hoverinfo="skip",
        **unchanged_by_selection(),
    )


def _numbers(figure: go.Figure, walks: Sequence[Walk], palette: Palette) -> None:
    """The rank as people count, 1 the best, in every cell but those of a best token that was accepted."""
    shades = colours(palette)
    cells = [
        (walk.step, depth, rank, depth == walk.stopped)
        for walk in walks
        for depth, rank in enumerate(walk.ranks, start=1)
        if rank != 0 or depth == walk.stopped
    ]
    grounds = [
        palette.background if ringed else shades[level_of(rank)] for _, _, rank, ringed in cells
    ]
    figure.add_scatter(
        name="numbers",
        x=[step for step, *_ in cells],
        y=[depth for _, depth, *_ in cells],
        mode="text",
        text=["–" if rank is None else str(rank + 1) for _, _, rank, _ in cells],
        textfont={"size": 10, "color": [legible_on(ground, palette) for ground in grounds]},
        hoverinfo="skip",
    )


def legible_on(ground: str, palette: Palette) -> str:
    """Ink or background, whichever stands out more."""
    both = (palette.ink, palette.background)
    return max(both, key=lambda colour: abs(_brightness(colour) - _brightness(ground)))


def _brightness(colour: str) -> float:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _places_to_click(figure: go.Figure, walks: Sequence[Walk]) -> None:
    boxes = []  # step, top, height, what it says
    for walk in walks:
        boxes += [
            (walk.step, depth - 0.5, 1, asked_text(walk, depth))
            for depth in range(1, len(walk.ranks) + 1)
        ]
        if rest := walk.depths - len(walk.ranks):
            boxes.append((walk.step, len(walk.ranks) + 0.5, rest, not_asked_text(walk)))
    figure.add_bar(
        name="places",
        x=[step for step, *_ in boxes],
        base=[top for _, top, *_ in boxes],
        y=[height for *_, height, _ in boxes],
        width=1,
        marker={"opacity": 0},
        hovertext=[for_plotly(text) for *_, text in boxes],
        hoverinfo="text",
        customdata=[step for step, *_ in boxes],
        **unchanged_by_selection(opacity=0),
    )
    figure.update_layout(barmode="overlay")


def asked_text(walk: Walk, depth: int) -> str:
    """What a cell says of a depth that the target was asked about."""
    rank = walk.ranks[depth - 1]
    rated = "not among the drafter's candidates" if rank is None else f"the drafter's {nth(rank)}"
    end = "; the walk stopped here" if depth == walk.stopped else ""
    if end and walk.end is not None:
        end += f", at a token {said(walk.end, walk.topk, walk.budget)}"
    token = shorten(walk.chosen[depth - 1], 24)
    return f'step {walk.step}, depth {depth}: the target chose "{token}", {rated}{end}'


def not_asked_text(walk: Walk) -> str:
    """What the cells below the walk's end say."""
    first = len(walk.ranks) + 1
    which = f"depth {first}" if first == walk.depths else f"depths {first} … {walk.depths}"
    why = "the text had ended" if walk.stopped is None else "the walk had ended"
    return f"step {walk.step}, {which}: not asked, {why}"


def _legend(figure: go.Figure, palette: Palette) -> None:
    """One mark a level, and the ring, below the steps; the map itself has no entry."""
    figure.update_traces(showlegend=False)
    marks = [
        (NAMES[level], {"symbol": "square", "size": 11, "color": colour})
        for level, colour in zip(Level, colours(palette), strict=True)
    ]
    for name, marker in (*marks, ("walk stopped", _ring(palette, 9))):
        figure.add_scatter(name=name, x=[None], y=[None], mode="markers", marker=marker)
    figure.update_layout(
        showlegend=True,
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0.0,
            "yanchor": "bottom",
            "x": 0,
            "itemclick": False,
            "itemdoubleclick": False,
            "font": {"size": 10, "color": palette.muted},
            "bgcolor": "rgba(0,0,0,0)",
        },
    )


def _axes(
    figure: go.Figure, palette: Palette, first: int, last: int, depths: int, cell: int
) -> None:
    apart = round_up(-(-(last - first + 1) // TICKS))
    font = {"size": 10, "color": palette.muted}
    figure.update_xaxes(
        range=[first - 0.7, max(last, first + FEWEST) + 0.7],
        showticklabels=True,
        tickfont=font,
        tickmode="array",
        tickvals=[step for step in range(first - first % apart, last + 1, apart) if step >= first],
        tickformat="d",
    )
    every = max(1, -(-12 // cell))
    shown = list(range(1, depths + 1, every))
    figure.update_yaxes(
        range=[depths + 0.5, 0.5],
        showticklabels=True,
        tickfont=font,
        tickmode="array",
        tickvals=shown,
        ticktext=[f"depth {depth}" for depth in shown],
    )
