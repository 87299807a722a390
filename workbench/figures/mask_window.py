"""A window of a mask difference with every cell exact; rows and columns by number, tree columns by
token.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go

from workbench.figures.base import blank, discrete
from workbench.figures.mask_codes import GLYPHS, WORDS, Code, Codes, colours, is_wrong
from workbench.stepview import StepView
from workbench.theme import Palette
from workbench.tokens import for_plotly

LABELLED = 70  # rows or columns that still get a name each
SIGNED_CELLS = 2500
HOVER_CELLS = 20_000

Window = tuple[int, int, int, int]  # first and past-last row, first and past-last column


def mask_window(
    view: StepView,
    codes: Codes,
    prefix_len: int,
    window: Window,
    palette: Palette,
    selected: int | None = None,
) -> go.Figure:
    """``codes``: the whole mask; ``prefix_len``: its columns before the tree's."""
    top, bottom, left, right = window
    cells = codes[top:bottom, left:right]
    rows, columns = list(range(top, bottom)), list(range(left, right))
    figure = blank(palette, int(np.clip(len(rows) * 21, 120, 900)) + 110, t=96, b=14)
    figure.add_heatmap(
        z=cells,
        x0=left,
        dx=1,
        y0=top,
        dy=1,
        xgap=int(len(columns) <= 90),
        ygap=int(len(rows) <= 90),
        **_hover(view, cells, prefix_len, window),
        **discrete(colours(palette, faint=True)),
    )
    wrong = np.argwhere(is_wrong(cells))
    if len(wrong) <= SIGNED_CELLS and cells.size <= HOVER_CELLS:
        figure.add_scatter(
            x=[left + int(column) for _, column in wrong],
            y=[top + int(row) for row, _ in wrong],
            mode="text",
            text=[GLYPHS[Code(int(cells[row, column]))] for row, column in wrong],
            textfont={"size": 13, "color": palette.background},
            hoverinfo="skip",
        )
    font = {"size": 10, "color": palette.ink}
    figure.update_xaxes(
        side="top",
        tickangle=-90,
        range=[left - 0.5, right - 0.5],
        showticklabels=True,
        tickfont=font,
        **_ticks(columns, lambda c: column_label(view, c, prefix_len)),
    )
    figure.update_yaxes(
        range=[bottom - 0.5, top - 0.5],
        showticklabels=True,
        automargin=True,
        tickfont=font,
        **_ticks(rows, lambda r: f"{view.label(r, 10)} {r}"),
    )
    if selected is not None and top <= selected < bottom:
        figure.add_shape(
            type="rect",
            x0=left - 0.5,
            x1=right - 0.5,
            y0=selected - 0.5,
            y1=selected + 0.5,
            line={"color": palette.selected, "width": 2},
        )
    return figure


def column_label(view: StepView, column: int, prefix_len: int) -> str:
    """``prefix 12``, or the node's token and number."""
    if column < prefix_len:
        return f"prefix {column}"
    return f"{view.label(column - prefix_len, 10)} {column - prefix_len}"


def _ticks(numbers: list[int], name: Callable[[int], str]) -> dict[str, object]:
    stride = max(1, -(-len(numbers) // LABELLED))
    shown = numbers[::stride]
    texts = [for_plotly(name(number)) for number in shown]
    return {"tickmode": "array", "tickvals": shown, "ticktext": texts}


def _hover(view: StepView, cells: Codes, prefix_len: int, window: Window) -> dict[str, object]:
    top, _, left, _ = window
    if cells.size > HOVER_CELLS:
        return {"hovertemplate": "row %{y}, column %{x}<extra></extra>"}
    texts = [
        [
            for_plotly(
                f"row {top + r} = {view.name(top + r)}, column {left + c} = "
                f"{column_label(view, left + c, prefix_len)}: {WORDS[Code(int(code))]}"
            )
            for c, code in enumerate(line)
        ]
        for r, line in enumerate(cells)
    ]
    return {"hovertext": texts, "hoverinfo": "text"}
