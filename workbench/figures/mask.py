"""One mask, or the difference of two: tree columns in full, the prefix folded to a band until it is
asked for.

A heatmap's cells cannot be picked, so a gutter of markers (and, on small masks, one faint marker a
cell) carries the row's node number as ``customdata``.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from engine.layout import MaskView
from workbench.figures.base import blank, discrete, unchanged_by_selection
from workbench.figures.mask_codes import GLYPHS, WORDS, Code, Codes, colours, is_wrong
from workbench.outcome import mark
from workbench.stepview import StepView
from workbench.theme import Palette
from workbench.tokens import for_plotly

BAND = (-3.6, -1.0)  # x range of the folded prefix
GUTTER = -4.6
PICKABLE_CELLS = 1200
GLYPH_CELLS = 2500
HOVER_CELLS = 20_000


def mask_figure(
    view: StepView,
    shown: MaskView,
    codes: Codes,
    palette: Palette,
    selected: int | None = None,
    *,
    open_prefix: bool = False,
    is_difference: bool = False,
    beside: MaskView | None = None,
) -> go.Figure:
    """``codes``: [q_len, prefix_len + q_len] as :mod:`mask_codes` makes them. ``beside``: the mask
    to compare in hover.
    """
    prefix_len, q_len = shown.prefix_len, shown.q_len
    first = 0 if open_prefix else prefix_len
    height = 22 if q_len <= 24 else 13
    figure = blank(palette, q_len * height + 120, l=8, t=96, b=20)
    looks = discrete(colours(palette, faint=is_difference))
    window = codes[:, first:]
    x0 = first - prefix_len
    figure.add_heatmap(
        name="cells",
        z=window,
        x0=x0,
        dx=1,
        y0=0,
        dy=1,
        xgap=1 if window.shape[1] <= 80 else 0,
        ygap=1 if q_len <= 80 else 0,
        **_hover_arguments(view, shown, codes, beside, first, x0),
        **looks,
    )
    if not open_prefix and prefix_len:
        _band(figure, view, codes[:, :prefix_len], palette, looks)
    _glyphs(figure, window, palette, x0)
    _hatch_padding(figure, view, palette, x0)
    _pick_cells(figure, view, shown, codes, beside, first, x0)
    _gutter(figure, view, palette, x0)
    _axes(figure, view, palette, x0, selected)
    return figure


def cell_text(
    view: StepView,
    shown: MaskView,
    codes: Codes,
    beside: MaskView | None,
    row: int,
    column: int,
) -> str:
    """What a cell is: row, column, byte, and both sides of it."""
    flat = view.first_row + row
    node = column - shown.prefix_len
    place = f"prefix position {column}" if node < 0 else view.name(node)
    lines = [f"row {flat} = {view.name(row)}", f"column {column} = {place}"]
    byte = int(shown.bytes[row, column])
    if byte >= 0:
        lines.append(f"byte {byte} of request {view.record.rid}")
    lines.append(f"{shown.kind}: {WORDS[Code(int(codes[row, column]))]}")
    if beside is not None and int(beside.bytes[row, column]) not in (-1, byte):
        lines.append(f"its own byte is {int(beside.bytes[row, column])}")
    return "<br>".join(map(for_plotly, lines))


def _hover_arguments(
    view: StepView, shown: MaskView, codes: Codes, beside: MaskView | None, first: int, x0: int
) -> dict[str, object]:
    rows, columns = codes.shape
    if rows * (columns - first) > HOVER_CELLS:
        return {"hovertemplate": "row %{y}, tree column %{x}<extra></extra>"}
    text = [
        [cell_text(view, shown, codes, beside, row, column) for column in range(first, columns)]
        for row in range(rows)
    ]
    return {"hovertext": text, "hoverinfo": "text"}


def _band(
    figure: go.Figure, view: StepView, prefix: Codes, palette: Palette, looks: dict[str, object]
) -> None:
    """One cell a row: the worst of its prefix cells; plain visible where all are."""
    worst = prefix.max(axis=1, keepdims=True)
    hidden = (prefix == Code.HIDDEN).any(axis=1)
    folded = np.where((worst <= Code.VISIBLE) & hidden[:, None], Code.UNREAD, worst)
    texts = [[_band_text(prefix[row])] for row in range(len(prefix))]
    figure.add_heatmap(
        name="prefix",
        z=folded.astype(np.uint8),
        x=list(BAND),
        y0=0,
        dy=1,
        ygap=1,
        opacity=0.55,
        hovertext=texts,
        hoverinfo="text",
        **looks,
    )
    real = prefix[: view.num_nodes]
    whole = bool((real == Code.VISIBLE).all())
    note = "all visible" if whole else f"{int(is_wrong(real).sum())} differ"
    figure.add_annotation(
        x=sum(BAND) / 2,
        y=-0.5,
        yanchor="bottom",
        yshift=2,
        showarrow=False,
        textangle=-90,
        text=f"prefix 0 … {prefix.shape[1] - 1}<br>{note}",
        font={"size": 10, "color": palette.muted},
    )


def _band_text(prefix_row: Codes) -> str:
    parts = [
        f"{int((prefix_row == code).sum())} {WORDS[code]}"
        for code in Code
        if (prefix_row == code).any()
    ]
    return f"prefix, {len(prefix_row)} columns: " + ", ".join(parts)


def _glyphs(figure: go.Figure, window: Codes, palette: Palette, x0: int) -> None:
    """A sign in each differing cell, so that colour does not stand alone."""
    wrong = np.argwhere(is_wrong(window))
    if len(wrong) > GLYPH_CELLS or window.size > HOVER_CELLS:
        return
    figure.add_scatter(
        name="signs",
        x=[int(column) + x0 for _, column in wrong],
        y=[int(row) for row, _ in wrong],
        mode="text",
        text=[GLYPHS[Code(int(window[row, column]))] for row, column in wrong],
        textfont={"size": 13, "color": palette.background},
        hoverinfo="skip",
    )


def _hatch_padding(figure: go.Figure, view: StepView, palette: Palette, x0: int) -> None:
    """Rows and columns without a node, hatched."""
    start, stop = view.num_nodes - 0.5, view.q_len - 0.5
    if start >= stop:
        return
    left = min(x0 - 0.5, BAND[0])
    pattern = {"shape": "/", "size": 6, "solidity": 0.25, "fgcolor": palette.muted}
    for xs, ys in (
        ((left, stop), (start, stop)),
        ((start, stop), (-0.5, start)),
    ):
        figure.add_scatter(
            name="padding",
            x=[xs[0], xs[1], xs[1], xs[0], xs[0]],
            y=[ys[0], ys[0], ys[1], ys[1], ys[0]],
            mode="lines",
            fill="toself",
            fillpattern={**pattern, "bgcolor": "rgba(0,0,0,0)"},
            line={"width": 0},
            hoverinfo="skip",
        )


def _pick_cells(
    figure: go.Figure,
    view: StepView,
    shown: MaskView,
    codes: Codes,
    beside: MaskView | None,
    first: int,
    x0: int,
) -> None:
    rows, columns = codes.shape
    if rows * (columns - first) > PICKABLE_CELLS:
        return
    cells = [(row, column) for row in range(rows) for column in range(first, columns)]
    figure.add_scatter(
        name="pick",
        x=[column - first + x0 for _, column in cells],
        y=[row for row, _ in cells],
        mode="markers",
        marker={"symbol": "square", "size": 16, "opacity": 0.0},
        hovertext=[cell_text(view, shown, codes, beside, *cell) for cell in cells],
        hoverinfo="text",
        customdata=[row for row, _ in cells],
        **unchanged_by_selection(0.0),
    )


def _gutter(figure: go.Figure, view: StepView, palette: Palette, x0: int) -> None:
    rows = list(range(view.q_len))
    looks = [mark(view.outcome(row)) for row in rows]
    figure.add_scatter(
        name="gutter",
        x=[min(GUTTER, x0 - 1.6)] * len(rows),
        y=rows,
        mode="markers",
        marker={
            "symbol": [look.symbol for look in looks],
            "color": [look.colour(dark=palette.dark) for look in looks],
            "size": 11 if view.q_len <= 24 else 8,
        },
        hovertext=[for_plotly(f"row {view.first_row + row} = {view.name(row)}") for row in rows],
        hoverinfo="text",
        customdata=rows,
        cliponaxis=False,
        **unchanged_by_selection(),
    )


def _axes(
    figure: go.Figure, view: StepView, palette: Palette, x0: int, selected: int | None
) -> None:
    rows = list(range(view.q_len))
    names = [for_plotly(f"{view.label(row, 10)} {row}") for row in rows]
    left = min(GUTTER, x0 - 1.6) - 0.9
    font = {"size": 11 if view.q_len <= 24 else 9, "color": palette.ink}
    shared = {"tickmode": "array", "tickvals": rows, "showticklabels": True, "tickfont": font}
    figure.update_xaxes(
        **shared, ticktext=names, tickangle=-90, side="top", range=[left, view.q_len - 0.4]
    )
    figure.update_yaxes(**shared, ticktext=names, range=[view.q_len - 0.4, -0.6], automargin=True)
    if selected is not None and 0 <= selected < view.q_len:
        line = {"color": palette.selected, "width": 2}
        figure.add_shape(
            type="rect",
            x0=left,
            x1=view.q_len - 0.5,
            y0=selected - 0.5,
            y1=selected + 0.5,
            line=line,
            fillcolor="rgba(0,0,0,0)",
        )
        figure.add_shape(
            type="rect",
            x0=selected - 0.5,
            x1=selected + 0.5,
            y0=-0.5,
            y1=view.q_len - 0.5,
            line={**line, "width": 1, "dash": "dot"},
            fillcolor="rgba(0,0,0,0)",
        )
