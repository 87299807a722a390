"""All cells of an experiment: colour, shape and word of each outcome, and the tokens a step; a click goes to the cell.

As in :mod:`workbench.figures.rank_map`, unseen bars take the clicks, since a heatmap's cells cannot be picked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from engine.isolate.cell import Cell
from engine.isolate.outcome import Outcome
from workbench.figures.base import blank, discrete, mix, unchanged_by_selection
from workbench.figures.grid_labels import LINE, label_columns, label_rows, widths
from workbench.lab_grid import LabGrid, spans
from workbench.outcome import cell_mark
from workbench.theme import Palette
from workbench.tokens import for_plotly

TALLEST = 620  # pixels of all rows together
WORDS, GLYPHS = 10, 48  # columns up to which a cell has room for its word, and for its glyph
TINT = 0.2  # share of an outcome's colour in its cell
CODES = {outcome: code for code, outcome in enumerate((None, *Outcome))}


@dataclass(frozen=True)
class Face:
    """How one cell stands."""

    outcome: Outcome | None  # None: not measured
    number: float | None = None  # tokens a step
    hover: tuple[str, ...] = ()
    measuring: bool = False


def lab_matrix(
    grid: LabGrid, faces: Mapping[Cell, Face], palette: Palette, selected: Cell | None = None
) -> go.Figure:
    """``faces``: of each cell of the grid."""
    rows, columns = len(grid.rows), len(grid.columns)
    height = max(15, min(52, TALLEST // max(rows, 1)))
    down = spans(grid.rows, grid.down)
    across = spans(grid.columns, grid.across)
    top = LINE * len(across) + 6
    figure = blank(palette, rows * height + top + 4, l=sum(widths(down)) + 4, r=4, t=top, b=4)
    figure.add_heatmap(
        name="outcomes",
        z=[[_code(faces.get(cell)) for cell in row] for row in grid.cells],
        xgap=3 if columns <= GLYPHS else 1,
        ygap=3 if height > 24 else 1,
        hoverinfo="skip",
        **discrete(_shades(palette)),
    )
    _signs(figure, grid, faces, palette, height)
    _places_to_click(figure, grid, faces)
    label_rows(figure, down, palette)
    label_columns(figure, across, grid.across, columns, palette)
    _ring(figure, grid, selected, palette)
    figure.update_xaxes(range=[-0.5, columns - 0.5])
    figure.update_yaxes(range=[rows - 0.5, -0.5])
    return figure


def _code(face: Face | None) -> int:
    return CODES[None if face is None else face.outcome]


def _shades(palette: Palette) -> list[str]:
    tints = [
        mix(palette.background, cell_mark(outcome).colour(dark=palette.dark), TINT)
        for outcome in Outcome
    ]
    return [palette.hidden, *tints]


def _signs(
    figure: go.Figure, grid: LabGrid, faces: Mapping[Cell, Face], palette: Palette, height: int
) -> None:
    """One text trace an outcome, so that each has its own colour at once."""
    by_outcome: dict[Outcome | None, list[tuple[int, int, Face]]] = {}
    for row, cells in enumerate(grid.cells):
        for column, cell in enumerate(cells):
            if (face := faces.get(cell)) is not None:
                by_outcome.setdefault(face.outcome, []).append((row, column, face))
    many, low = len(grid.columns), height < 34
    for outcome, placed in by_outcome.items():
        figure.add_scatter(
            name="not measured" if outcome is None else str(outcome),
            x=[column for _, column, _ in placed],
            y=[row for row, _, _ in placed],
            mode="text",
            text=[sign(face, columns=many, low=low) for _, _, face in placed],
            textfont={
                "size": 13 if many <= WORDS else 12 if many <= GLYPHS else 8,
                "color": cell_mark(outcome).colour(dark=palette.dark),
            },
            hoverinfo="skip",
            showlegend=False,
        )


def sign(face: Face, *, columns: int, low: bool) -> str:
    """What stands in a cell: glyph, word and number as far as there is room."""
    look = cell_mark(face.outcome)
    glyph = "…" if face.measuring else look.glyph
    if columns > WORDS:
        return glyph
    word = "measuring" if face.measuring else look.word
    text = f"{glyph} {word}".strip()
    if face.number is None:
        return text
    return f"{text}{'  ' if low else '<br>'}{face.number:.2f}"


def _places_to_click(figure: go.Figure, grid: LabGrid, faces: Mapping[Cell, Face]) -> None:
    width = len(grid.columns)
    cells = [
        (row, column, cell)
        for row, line in enumerate(grid.cells)
        for column, cell in enumerate(line)
    ]
    figure.add_bar(
        name="places",
        x=[column for _, column, _ in cells],
        base=[row - 0.5 for row, _, _ in cells],
        y=[1] * len(cells),
        width=1,
        marker={"opacity": 0},
        hovertext=["<br>".join(map(for_plotly, _hover(faces.get(cell)))) for *_, cell in cells],
        hoverinfo="text",
        customdata=[row * width + column for row, column, _ in cells],
        showlegend=False,
        **unchanged_by_selection(opacity=0),
    )
    figure.update_layout(barmode="overlay")


def _hover(face: Face | None) -> Sequence[str]:
    return () if face is None else face.hover


def _ring(figure: go.Figure, grid: LabGrid, selected: Cell | None, palette: Palette) -> None:
    for row, cells in enumerate(grid.cells):
        for column, cell in enumerate(cells):
            if cell == selected:
                figure.add_shape(
                    type="rect",
                    x0=column - 0.49,
                    x1=column + 0.49,
                    y0=row - 0.48,
                    y1=row + 0.48,
                    line={"color": palette.selected, "width": 2},
                )
