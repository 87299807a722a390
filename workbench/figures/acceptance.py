"""Which path was accepted: the engine's, and the one that plain decoding's choices give."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from workbench.figures.base import blank, unchanged_by_selection
from workbench.outcome import Outcome, mark
from workbench.stepview import StepView
from workbench.theme import Palette
from workbench.tokens import for_plotly, shorten

OURS, REFERENCE = "accepted", "reference"


@dataclass(frozen=True)
class Stop:
    """One token of a path; ``node`` None is the bonus token."""

    node: int | None
    token: int | None


def path_of(nodes: tuple[int, ...] | None, bonus: int | None, view: StepView) -> list[Stop]:
    """A path's tokens, the bonus last."""
    if nodes is None:
        return []
    return [*(Stop(n, int(view.tree.tokens[n])) for n in nodes), Stop(None, bonus)]


def first_divergence(left: list[Stop], right: list[Stop]) -> int | None:
    """Index of the first token that differs; None where the paths agree or one is unknown."""
    if not left or not right:
        return None
    for index, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        if mine.token != theirs.token and None not in (mine.token, theirs.token):
            return index
    return None


def acceptance_paths(view: StepView, palette: Palette, selected: int | None = None) -> go.Figure:
    """Both paths under each other, the first token that differs marked."""
    ours = path_of(view.accepted, view.bonus, view)
    theirs = path_of(view.reference_accepted, view.reference_bonus, view)
    longest = max(len(ours), len(theirs), 4)
    figure = blank(palette, 170, l=84, r=16, t=22, b=8)
    figure.update_xaxes(range=[-0.5, longest - 0.4])
    figure.update_yaxes(
        range=[-0.75, 1.6],
        showticklabels=True,
        tickmode="array",
        tickvals=[1, 0],
        ticktext=[OURS, REFERENCE],
        tickfont={"size": 11, "color": palette.ink},
    )
    _lane(figure, view, palette, ours, 1, selected)
    _lane(figure, view, palette, theirs, 0, selected)
    for y, stops, what in ((1, ours, "acceptance"), (0, theirs, "plain decoding's choices")):
        if not stops:
            figure.add_annotation(
                x=0,
                y=y,
                xanchor="left",
                showarrow=False,
                text=f"{what} not recorded",
                font={"size": 11, "color": palette.muted},
            )
    at = first_divergence(ours, theirs)
    if at is not None:
        figure.add_vline(x=at, line={"color": palette.fault, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=at,
            y=1.55,
            yanchor="bottom",
            showarrow=False,
            text="✖ first difference",
            font={"size": 11, "color": palette.fault},
        )
    return figure


def _lane(
    figure: go.Figure,
    view: StepView,
    palette: Palette,
    stops: list[Stop],
    y: int,
    selected: int | None,
) -> None:
    looks = [mark(_outcome(stop)) for stop in stops]
    line = {"color": palette.muted, "width": 1}
    figure.add_scatter(
        name=OURS if y else REFERENCE,
        x=list(range(len(stops))),
        y=[y] * len(stops),
        mode="lines+markers+text",
        line=line,
        marker={
            "symbol": [look.symbol for look in looks],
            "color": [look.colour(dark=palette.dark) for look in looks],
            "size": 13,
            "line": {
                "width": [
                    3 if stop.node == selected and selected is not None else 0 for stop in stops
                ],
                "color": palette.selected,
            },
        },
        text=[for_plotly(shorten(view.text_of(stop.token), 11)) for stop in stops],
        textposition="bottom center",
        textfont={"size": 12, "color": palette.ink},
        hovertext=[_hover(view, stop, reference=not y) for stop in stops],
        hoverinfo="text",
        customdata=[-1 if stop.node is None else stop.node for stop in stops],
        cliponaxis=False,
        **unchanged_by_selection(),
    )


def _outcome(stop: Stop) -> Outcome:
    if stop.node is None:
        return Outcome.BONUS
    return Outcome.ACCEPTED if stop.node else Outcome.ROOT


def _hover(view: StepView, stop: Stop, *, reference: bool) -> str:
    if stop.node is None:
        return for_plotly(f"bonus {view.text_of(stop.token)} (token {stop.token})")
    choice = view.reference_choice(stop.node) if reference else view.choice(stop.node)
    lines = [view.name(stop.node), f"target chose {view.text_of(choice)}"]
    margin = view.margin(stop.node)
    if margin is not None and not reference:
        lines.append(f"margin {margin:.3f} logits")
    return "<br>".join(map(for_plotly, lines))
