"""What the drafter believed against what the target chose: one step by depth and rank, and a whole run by budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from engine.decoding.acceptance_curve import NOBODY, CurvePoint, DraftedPlace
from engine.decoding.best_first import Candidates
from workbench.figures.base import blank
from workbench.ordinals import nth
from workbench.ordinals import place as place_word
from workbench.outcome import Outcome, mark
from workbench.theme import Palette
from workbench.tokens import for_plotly, shorten

SHOWN_RANKS = 6
ROOM = "\u00a0\u00a0"  # of a mark, in letters
SHOWN_DEPTHS = 64
LATER = SHOWN_RANKS  # the column of everything that ranks lower


def marginals(place: DraftedPlace, palette: Palette, text_of: Callable[[int], str]) -> go.Figure:
    """Depth by rank: the drafter's best tokens and their probabilities; the target's token of each depth is marked."""
    place = _drawn(place)
    depths = len(place.candidates.tokens)
    shown = min(SHOWN_RANKS, place.candidates.tokens.shape[1])
    figure = blank(palette, 42 + 30 * depths, l=58, r=12, t=26, b=6)
    figure.update_xaxes(
        range=[-0.5, LATER + 0.5],
        side="top",
        showticklabels=True,
        tickmode="array",
        tickvals=[*range(shown), LATER],
        ticktext=[*map(place_word, range(shown)), "later"],
        tickfont={"size": 10, "color": palette.muted},
    )
    figure.update_yaxes(
        range=[depths + 0.5, 0.5],
        showticklabels=True,
        tickmode="array",
        tickvals=list(range(1, depths + 1)),
        ticktext=[f"depth {d}" for d in range(1, depths + 1)],
        tickfont={"size": 10, "color": palette.muted},
    )
    probabilities = np.exp(np.minimum(place.candidates.log_probs[:, :shown], 0.0))
    tokens, ranks = place.candidates.tokens[:, :shown], place.target_ranks
    figure.add_heatmap(
        name="marginals",
        x=list(range(shown)),
        y=list(range(1, depths + 1)),
        z=np.round(probabilities, 4).tolist(),
        zmin=0.0,
        zmax=1.0,
        colorscale=[[0.0, palette.hidden], [1.0, palette.folded]],
        showscale=False,
        xgap=2,
        ygap=2,
        text=[
            [
                _cell(int(t), text_of, p, marked=d < len(ranks) and ranks[d] == k)
                for k, (t, p) in enumerate(zip(*pair, strict=True))
            ]
            for d, pair in enumerate(zip(tokens, probabilities, strict=True))
        ],
        texttemplate="%{text}",
        textfont={"size": 11, "color": palette.ink},
        hovertext=[
            [_hover(int(t), text_of, d, k, p) for k, (t, p) in enumerate(zip(*pair, strict=True))]
            for d, pair in enumerate(zip(tokens, probabilities, strict=True), start=1)
        ],
        hoverinfo="text",
    )
    _mark_target(figure, place, palette, text_of, shown)
    return figure


def _drawn(place: DraftedPlace) -> DraftedPlace:
    """The first depths, so that a recording cannot ask for a figure as tall as it likes."""
    whole = place.candidates
    first = Candidates(whole.log_probs[:SHOWN_DEPTHS], whole.tokens[:SHOWN_DEPTHS])
    return replace(place, candidates=first)


def _cell(token: int, text_of: Callable[[int], str], probability: float, *, marked: bool) -> str:
    """``marked``: the target's mark stands at the right, so that the text keeps out of its way."""
    if token == NOBODY:
        return ""
    text = f"{shorten(text_of(token), 6 if marked else 9)} {100 * probability:.0f}"
    return for_plotly(text + ROOM if marked else text)


def _hover(
    token: int, text_of: Callable[[int], str], depth: int, rank: int, probability: float
) -> str:
    if token == NOBODY:
        return f"depth {depth}, {nth(rank)}: no candidate"
    return for_plotly(
        f'depth {depth}, {nth(rank)}: "{text_of(token)}", probability {probability:.4f}'
    )


def _mark_target(
    figure: go.Figure,
    place: DraftedPlace,
    palette: Palette,
    text_of: Callable[[int], str],
    shown: int,
) -> None:
    """A mark on the target's token of every known depth: accepted, or chosen but not in the walk."""
    ranks = place.target_ranks
    outcomes = [
        Outcome.ACCEPTED if depth < place.accepted else Outcome.REJECTED
        for depth in range(len(ranks))
    ]
    columns = [rank if rank is not None and rank < shown else LATER for rank in ranks]
    where = [
        _rank_text(rank, tokens)
        for rank, tokens in zip(ranks, place.candidates.tokens, strict=False)
    ]
    figure.add_scatter(
        name="target",
        x=[column + 0.4 for column in columns],
        y=list(range(1, len(ranks) + 1)),
        mode="markers",
        marker={
            "symbol": [mark(outcome).symbol for outcome in outcomes],
            "color": [palette.outcome(outcome) for outcome in outcomes],
            "size": 11,
            "line": {"width": 1.5},
        },
        hovertext=[
            for_plotly(f'depth {depth}: the target chose "{text_of(token)}", {said}')
            for depth, (token, said) in enumerate(
                zip(place.following, where, strict=False), start=1
            )
        ],
        hoverinfo="text",
    )
    for depth, (token, column, rank) in enumerate(
        zip(place.following, columns, ranks, strict=False), start=1
    ):
        if column == LATER:
            figure.add_annotation(
                x=LATER - 0.5,
                y=depth,
                xanchor="left",
                showarrow=False,
                text=for_plotly(
                    f"{shorten(text_of(token), 7)} {'' if rank is None else place_word(rank)}"
                ),
                font={"size": 11, "color": palette.ink},
            )
    if place.accepted < len(place.candidates.tokens):
        figure.add_hline(
            y=place.accepted + 0.5, line={"color": palette.selected, "width": 1, "dash": "dot"}
        )


def _rank_text(rank: int | None, tokens: np.ndarray) -> str:
    """How the drafter had rated a token. ``tokens``: its candidates of the depth."""
    if rank is not None:
        return f"the drafter's {nth(rank)}"
    offered = int((tokens != NOBODY).sum())
    if offered < len(tokens):
        return f"not among the drafter's {offered} candidates"
    return f"not among the drafter's best {offered}, the others are not recorded"


def budget_curve(
    curve: Sequence[CurvePoint], chain: CurvePoint | None, palette: Palette, budget: int | None
) -> go.Figure:
    """Mean accepted length by budget, the chain of the same drafter as a level beside it."""
    figure = blank(palette, 190, l=44, r=16, t=12, b=34)
    top = max([p.accept_length for p in curve] + ([chain.accept_length] if chain else []))
    figure.update_xaxes(
        type="log",
        showticklabels=True,
        tickmode="array",
        tickvals=[p.budget for p in curve],
        tickfont={"size": 10, "color": palette.muted},
        title={"text": "budget, nodes", "font": {"size": 11, "color": palette.muted}},
    )
    figure.update_yaxes(
        range=[1, max(top * 1.12, 1.5)],
        showticklabels=True,
        showgrid=True,
        gridcolor=palette.grid,
        tickfont={"size": 10, "color": palette.muted},
    )
    accepted = palette.outcome(Outcome.ACCEPTED)
    figure.add_scatter(
        name="tree",
        x=[p.budget for p in curve],
        y=[p.accept_length for p in curve],
        mode="lines+markers",
        line={"color": accepted, "width": 2},
        marker={"size": [11 if p.budget == budget else 6 for p in curve], "color": accepted},
        hovertext=[
            f"budget {p.budget}: {p.accept_length:.2f} tokens a step, over {p.places} steps"
            for p in curve
        ],
        hoverinfo="text",
    )
    if chain is not None:
        figure.add_hline(
            y=chain.accept_length,
            line={"color": palette.muted, "width": 1, "dash": "dash"},
            annotation={
                "text": f"chain of {chain.budget}: {chain.accept_length:.2f}",
                "font": {"size": 11, "color": palette.muted},
            },
            annotation_position="bottom right",
        )
    return figure
