"""The flat mask buffer as two rulers: where each row starts as used, and where it should.

Below them the selected row cell by cell on the same scale: with a wrong stride the two lanes slide
apart.
"""

from __future__ import annotations

import plotly.graph_objects as go

from engine.checks.context import StepContext
from workbench.figures.base import blank, unchanged_by_selection
from workbench.outcome import Outcome
from workbench.rows import Span, as_used, should_be, span_at
from workbench.stepview import StepView
from workbench.theme import Palette
from workbench.tokens import for_plotly

USED, SHOULD = "used", "should be"
MAX_SPANS = 1200  # of one ruler; beyond it only the selected request's rows are drawn


def offsets_ruler(view: StepView, palette: Palette, selected: int | None = None) -> go.Figure:
    """Both rulers; rows alternate in shade, requests are set apart by their names."""
    context = view.context
    used, should = as_used(context), should_be(context)
    figure = blank(palette, 190, l=74, r=12, t=24, b=34)
    for lane, spans in ((USED, used), (SHOULD, should)):
        _ruler(figure, view, palette, lane, _bounded(spans or [], view.request), selected)
    _buffer_end(figure, context, palette)
    font = {"size": 11, "color": palette.ink}
    figure.update_yaxes(
        tickmode="array",
        tickvals=[1, 0],
        ticktext=[USED, SHOULD],
        showticklabels=True,
        tickfont=font,
        range=[-0.62, 1.62],
    )
    ends = [span.stop for span in (*(used or []), *should)]
    figure.update_xaxes(
        range=[min(0, *(s.start for s in (*(used or []), *should))), max(ends, default=1) * 1.01],
        showticklabels=True,
        tickformat="d",
        tickfont={"size": 10, "color": palette.muted},
        title={"text": _unit(context), "font": {"size": 10, "color": palette.muted}},
    )
    _request_names(figure, view, palette, should)
    return figure


def _bounded(spans: list[Span], request: int) -> list[Span]:
    return spans if len(spans) <= MAX_SPANS else [s for s in spans if s.request == request]


def _unit(context: StepContext) -> str:
    packed = context.step.config.mask_encoding == "bits"
    return "cell of custom_mask (one bit each)" if packed else "cell of custom_mask (one byte each)"


def _ruler(
    figure: go.Figure,
    view: StepView,
    palette: Palette,
    lane: str,
    spans: list[Span],
    selected: int | None,
) -> None:
    def is_selected(span: Span) -> bool:
        return (span.request, span.row) == (view.request, selected)

    shades = [palette.folded, palette.grid]
    figure.add_bar(
        name=lane,
        orientation="h",
        base=[span.start for span in spans],
        x=[span.stride for span in spans],
        y=[1 if lane == USED else 0] * len(spans),
        width=0.72,
        marker={
            "color": [palette.selected if is_selected(s) else shades[s.row % 2] for s in spans],
            "line": {"width": [1.5 if s.row == 0 else 0.5 for s in spans], "color": palette.ink},
        },
        hovertext=[_span_text(view, span, lane) for span in spans],
        hoverinfo="text",
        customdata=[span.row if span.request == view.request else -1 for span in spans],
        **unchanged_by_selection(),
    )


def _span_text(view: StepView, span: Span, lane: str) -> str:
    requests = view.step.requests
    rid = requests[span.request].rid if span.request < len(requests) else "padded request"
    row = view.name(span.row) if span.request == view.request else f"row {span.row}"
    text = f"{lane}: {row} of {rid}\ncells {span.start} … {span.stop - 1}, stride {span.stride}"
    return for_plotly(text).replace("\n", "<br>")


def _buffer_end(figure: go.Figure, context: StepContext, palette: Palette) -> None:
    buffer = context.step.inputs.custom_mask
    if buffer is None:
        return
    cells = len(buffer) * (8 if context.step.config.mask_encoding == "bits" else 1)
    figure.add_vline(
        x=cells,
        line={"color": palette.ink, "width": 1.5},
        annotation={"text": f"buffer ends at {cells}", "font": {"size": 10}, "xanchor": "right"},
    )


def _request_names(figure: go.Figure, view: StepView, palette: Palette, should: list[Span]) -> None:
    if view.step.captured_bs == 1:
        return
    for span in (s for s in should if s.row == 0):
        requests = view.step.requests
        rid = requests[span.request].rid if span.request < len(requests) else "padded"
        figure.add_annotation(
            x=span.start,
            y=-0.5,
            xanchor="left",
            showarrow=False,
            text=for_plotly(rid),
            font={"size": 10, "color": palette.muted},
        )


def row_cells(view: StepView, palette: Palette, node: int) -> go.Figure:
    """Tree cells of one row on the buffer's scale, as used and as they should be."""
    context = view.context
    columns = range(view.prefix_len, view.prefix_len + view.q_len)
    figure = blank(palette, 120, l=74, r=12, t=8, b=34)
    lanes = ((1, USED, view.context.addressed if context.can_address() else None),)
    lanes += ((0, SHOULD, view.context.intended),)
    for y, lane, masks in lanes:
        if masks is None or not view.well_formed:
            continue
        shown = masks[view.request]
        places = [(c, int(shown.bytes[node, c])) for c in columns if shown.bytes[node, c] >= 0]
        values = [int(shown.cells[node, c]) for c, _ in places]
        figure.add_scatter(
            name=lane,
            x=[byte for _, byte in places],
            y=[y] * len(places),
            mode="markers",
            marker={
                "symbol": ["square" if value == 1 else "square-open" for value in values],
                "color": [palette.visible if v == 1 else palette.muted for v in values],
                "size": 11,
            },
            hovertext=[
                _cell_text(view, lane, node, column, byte, value)
                for (column, byte), value in zip(places, values, strict=True)
            ],
            hoverinfo="text",
        )
        if not places:
            figure.add_annotation(
                x=0.5,
                xref="paper",
                y=y,
                showarrow=False,
                text="no program covers this row",
                font={"size": 11, "color": palette.outcome(Outcome.FAULT)},
            )
    figure.update_yaxes(
        tickmode="array",
        tickvals=[1, 0],
        ticktext=[USED, SHOULD],
        showticklabels=True,
        range=[-0.6, 1.6],
    )
    figure.update_xaxes(
        showticklabels=True, tickformat="d", tickfont={"size": 10, "color": palette.muted}
    )
    return figure


def _cell_text(view: StepView, lane: str, node: int, column: int, byte: int, value: int) -> str:
    state = {1: "visible", 0: "hidden"}.get(value, "outside the buffer")
    other = view.name(column - view.prefix_len)
    text = f"{lane}: row {view.first_row + node} = {view.name(node)}\ncolumn {column} = {other}\nbyte {byte}: {state}"
    return for_plotly(text).replace("\n", "<br>")


def row_spans(view: StepView, node: int) -> tuple[Span | None, Span | None]:
    """One row's cells as used and as they should be."""
    spans = should_be(view.context)
    return span_at(as_used(view.context), view.request, node), span_at(spans, view.request, node)
