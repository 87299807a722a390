"""Labels of a grid of settings: each factor a line above or a column on the left; equal neighbours share a label."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from engine.isolate.cell import Factor
from workbench.lab_grid import Span
from workbench.theme import Palette
from workbench.tokens import for_plotly

LINE = 20  # pixels of a line of labels
LETTER = 7.2  # pixels of a label's letter
WIDTH = 560  # pixels that all columns have together, at least
NAMES = {Factor.TOPK: "top-k"}


def widths(axes: Sequence[Sequence[Span]]) -> list[int]:
    """Pixels of each column of labels on the left."""
    return [round(LETTER * max(len(span.text) for span in axis)) + 14 for axis in axes]


def label_rows(figure: go.Figure, axes: Sequence[Sequence[Span]], palette: Palette) -> None:
    """The outermost factor first, from the left."""
    columns = widths(axes)
    offset = -sum(columns)
    for axis, width in zip(axes, columns, strict=True):
        place = {"x": 0, "xref": "paper", "xshift": offset, "xanchor": "left", "yanchor": "middle"}
        for span in axis:
            _label(figure, span.text, palette, y=(span.start + span.stop - 1) / 2, **place)
        offset += width
    for span in axes[0][1:] if len(axes) > 1 else ():
        edge = span.start - 0.5
        _rule(figure, palette, x0=0, x1=1, xref="paper", y0=edge, y1=edge)


def label_columns(
    figure: go.Figure,
    axes: Sequence[Sequence[Span]],
    factors: Sequence[Factor],
    count: int,
    palette: Palette,
) -> None:
    """The outermost factor on top. Without room for its words, values stand alone and its name beside them."""
    for depth, (axis, factor) in enumerate(zip(axes, factors, strict=True)):
        shift = 2 + LINE * (len(axes) - 1 - depth)
        place = {"y": 1, "yref": "paper", "yshift": shift, "yanchor": "bottom"}
        narrow = any(
            LETTER * len(span.text) > WIDTH / count * (span.stop - span.start) for span in axis
        )
        if narrow:
            name = NAMES.get(factor, str(factor))
            _label(figure, name, palette, x=0, xref="paper", xshift=-8, xanchor="right", **place)
        for span in axis:
            middle = (span.start + span.stop - 1) / 2
            text = span.short if narrow else span.text
            _label(figure, text, palette, x=middle, xanchor="center", **place)
    for span in axes[0][1:] if len(axes) > 1 else ():
        edge = span.start - 0.5
        _rule(figure, palette, x0=edge, x1=edge, y0=0, y1=1, yref="paper")


def _label(figure: go.Figure, text: str, palette: Palette, **place: object) -> None:
    font = {"size": 11, "color": palette.muted}
    figure.add_annotation(text=for_plotly(text), showarrow=False, font=font, **place)


def _rule(figure: go.Figure, palette: Palette, **place: object) -> None:
    """A thin line between values of an outermost factor."""
    figure.add_shape(type="line", line={"color": palette.folded, "width": 1}, **place)
