"""The draft tree: tokens, what became of them, and where the target went on by itself."""

from __future__ import annotations

import plotly.graph_objects as go

from workbench.figures.base import blank, unchanged_by_selection
from workbench.figures.tree_layout import BONUS, Places, place, unplaced
from workbench.outcome import Outcome, mark
from workbench.stepview import StepView
from workbench.theme import Palette
from workbench.tokens import for_plotly, shorten

LINE_HEIGHT = {True: 34, False: 22}  # pixels a line; roomy while the tree is small
ROOMY_LINES = 14
LABEL_LENGTH = 11
LABEL_SPACE = 84  # characters of all levels side by side


def draft_tree(
    view: StepView, palette: Palette, selected: int | None = None, *, edge_weights: bool = False
) -> go.Figure:
    """The tree with its bonus node; rows without a node in a line of their own below."""
    places = place(view.tree, view.accepted or (), with_bonus=view.bonus is not None)
    star = places.pop(BONUS, None)
    everything = [*places.values(), *([] if star is None else [star])]
    lines = max((y for _, y in everything), default=0.0) + 1
    apart = [*unplaced(view.tree), *range(view.num_nodes, view.q_len)]
    height = LINE_HEIGHT[lines <= ROOMY_LINES]
    total = lines + (1.6 if apart else 0.0)
    figure = blank(palette, max(int(total * height) + 44, 220), t=14, b=6)
    last = max((x for x, _ in everything), default=0.0)
    figure.update_xaxes(range=[-0.45, last + 0.6])
    figure.update_yaxes(range=[total - 0.1, -0.9])
    _edges(figure, view, palette, places)
    if edge_weights:
        _edge_weights(figure, view, palette, places)
    _ring(figure, palette, places.get(-1 if selected is None else selected))
    _nodes(figure, view, palette, places)
    _bonus(figure, view, palette, star, label_length(places))
    if apart:
        _apart(figure, view, palette, apart, lines + 0.6, last, selected)
    return figure


def label_length(places: Places) -> int:
    """Characters that a label may have without reaching the next level's."""
    levels = int(max((x for x, _ in places.values()), default=0)) + 2
    return min(max(LABEL_SPACE // levels, 3), LABEL_LENGTH)


def _edges(figure: go.Figure, view: StepView, palette: Palette, places: Places) -> None:
    accepted = set(view.accepted or ())
    for on_path, colour, width in (
        (False, palette.muted, 1),
        (True, palette.outcome(Outcome.ACCEPTED), 3),
    ):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for node, (x, y) in places.items():
            parent = int(view.tree.parents[node])
            if node == 0 or (node in accepted) != on_path:
                continue
            px, py = places[parent]
            xs += [px, px + 0.28, px + 0.42, x, None]
            ys += [py, py, y, y, None]
        line = {"color": colour, "width": width}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip")


def _nodes(figure: go.Figure, view: StepView, palette: Palette, places: Places) -> None:
    nodes = list(places)
    looks = [mark(view.outcome(node)) for node in nodes]
    figure.add_scatter(
        name="nodes",
        x=[places[node][0] for node in nodes],
        y=[places[node][1] for node in nodes],
        mode="markers+text",
        marker={
            "symbol": [look.symbol for look in looks],
            "color": [look.colour(dark=palette.dark) for look in looks],
            "size": 12,
            "line": {"width": 2},
        },
        text=[for_plotly(view.label(node, label_length(places))) for node in nodes],
        textposition="top center",
        textfont={"size": 12, "color": [_text_colour(view, palette, node) for node in nodes]},
        hovertext=[_hover(view, node) for node in nodes],
        hoverinfo="text",
        customdata=nodes,
        cliponaxis=False,
        **unchanged_by_selection(),
    )
    faulty = [node for node in nodes if view.findings_at(node)]
    figure.add_scatter(
        name="findings",
        x=[places[node][0] + 0.13 for node in faulty],
        y=[places[node][1] + 0.24 for node in faulty],
        mode="markers",
        marker={"symbol": "x", "size": 6, "color": palette.fault},
        hoverinfo="skip",
    )


def _text_colour(view: StepView, palette: Palette, node: int) -> str:
    return palette.muted if view.outcome(node) is Outcome.REJECTED else palette.ink


def _hover(view: StepView, node: int) -> str:
    lines = [f"<b>{for_plotly(view.name(node))}</b> · {view.outcome(node)}"]
    depth, parent = int(view.tree.depths[node]), int(view.tree.parents[node])
    lines.append(f"depth {depth}, parent {parent}" if node else "depth 0, root")
    weight = view.log_weight(node)
    if weight is not None:
        lines.append(f"log-probability of the path {weight:.2f}")
    choice = view.choice(node)
    if choice is not None:
        lines.append(f"target chose {for_plotly(view.text_of(choice))} (token {choice})")
    lines += [f"{mark(Outcome.FAULT).glyph} {for_plotly(f.name)}" for f in view.findings_at(node)]
    return "<br>".join(lines)


def _edge_weights(figure: go.Figure, view: StepView, palette: Palette, places: Places) -> None:
    nodes = [node for node in places if node and view.log_weight(node) is not None]
    figure.add_scatter(
        x=[places[node][0] - 0.42 for node in nodes],
        y=[places[node][1] + 0.32 for node in nodes],
        mode="text",
        text=[f"{view.log_weight(node):.2f}" for node in nodes],
        textfont={"size": 9, "color": palette.muted},
        hoverinfo="skip",
    )


def _ring(figure: go.Figure, palette: Palette, at: tuple[float, float] | None) -> None:
    points = [] if at is None else [at]
    figure.add_scatter(
        name="selected",
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="markers",
        marker={
            "symbol": "circle-open",
            "size": 24,
            "color": palette.selected,
            "line": {"width": 3},
        },
        hoverinfo="skip",
    )


def _bonus(
    figure: go.Figure,
    view: StepView,
    palette: Palette,
    at: tuple[float, float] | None,
    length: int,
) -> None:
    """The ★ after the last accepted node; it is not in the tree and cannot be picked."""
    if at is None or view.bonus is None:
        return
    look, text = mark(Outcome.BONUS), view.text_of(view.bonus)
    colour = look.colour(dark=palette.dark)
    line = {"color": colour, "width": 2, "dash": "dot"}
    figure.add_scatter(
        x=[at[0] - 0.9, at[0]], y=[at[1], at[1]], mode="lines", line=line, hoverinfo="skip"
    )
    figure.add_scatter(
        name="bonus",
        x=[at[0]],
        y=[at[1]],
        mode="markers+text",
        marker={"symbol": look.symbol, "size": 15, "color": colour},
        text=[for_plotly(shorten(text, length))],
        textposition="top center",
        textfont={"size": 12, "color": colour},
        hovertext=[f"<b>bonus {for_plotly(text)}</b> (token {view.bonus})<br>{look.meaning}"],
        hoverinfo="text",
        cliponaxis=False,
    )


def _apart(
    figure: go.Figure,
    view: StepView,
    palette: Palette,
    rows: list[int],
    line: float,
    last: float,
    selected: int | None,
) -> None:
    """Padding rows, and nodes that never reach the root, in one line."""
    step = min(0.32, (last + 0.4) / max(len(rows), 1))
    xs = {row: k * step for k, row in enumerate(rows)}
    broken = [row for row in rows if row < view.num_nodes]
    padding = len(rows) - len(broken)
    title = f"rows {view.num_nodes}–{view.q_len - 1}: padding" if padding else ""
    if broken:
        title = f"{len(broken)} nodes never reach the root  {title}"
    looks = [mark(Outcome.FAULT if row in broken else Outcome.PADDING) for row in rows]
    _ring(figure, palette, (xs[selected], line) if selected in xs else None)
    figure.add_scatter(
        name="apart",
        x=list(xs.values()),
        y=[line] * len(rows),
        mode="markers",
        marker={
            "symbol": [look.symbol for look in looks],
            "color": [look.colour(dark=palette.dark) for look in looks],
            "size": 9,
        },
        hovertext=[for_plotly(view.name(row)) for row in rows],
        hoverinfo="text",
        customdata=rows,
        **unchanged_by_selection(),
    )
    figure.add_annotation(
        x=-0.1,
        y=line - 0.55,
        text=title,
        showarrow=False,
        xanchor="left",
        font={"size": 11, "color": palette.muted},
    )
