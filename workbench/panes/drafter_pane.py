"""The drafter: its marginals at one step beside the target's choices, and what other budgets would have accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from engine.decoding.acceptance_curve import CurvePoint, DraftedPlace
from workbench.drafted import offers, places_of
from workbench.figures.base import CONFIG
from workbench.figures.drafter import SHOWN_DEPTHS, budget_curve, marginals
from workbench.glossary import explain
from workbench.loaded import Loaded
from workbench.ordinals import nth
from workbench.stepview import StepView
from workbench.theme import Palette
from workbench.tokens import as_code, visible
from workbench.verdict import plural
from workbench.walk_ends import end_of, said

NOT_RECORDED = (
    "The drafter's marginals were not recorded (workbench.draft_tokens): "
    "`ddtree run` and the Run page record them."
)
NOTHING_OFFERED = (
    "The drafter offered no candidate at this step: the step wrote the target's own token alone."
)


def draw_marginals(loaded: Loaded, view: StepView, palette: Palette) -> None:
    """One step: depth by rank, and where the walk stopped."""
    st.markdown("**Drafter**", help=explain("drafter's rank"))
    place = place_of(loaded, view)
    if place is None:
        st.caption(NOT_RECORDED)
        return
    if not any(offers(place)):
        st.caption(NOTHING_OFFERED)
        return
    texts = loaded.texts if view.show_text else {}

    def text_of(token: int) -> str:
        return visible(texts[token]) or "∅" if token in texts else f"#{token}"

    figure = marginals(place, palette, text_of)
    st.plotly_chart(figure, width="stretch", config=CONFIG, key="marginals", theme=None)
    if (depths := len(place.candidates.tokens)) > SHOWN_DEPTHS:
        st.caption(f"The first {SHOWN_DEPTHS} of {depths:,} depths are drawn.")
    config = view.step.config
    end = end_of(place, view.record.tree, config)
    why = "" if end is None else f": a token {said(end, config.topk, config.budget)}"
    st.caption(place_text(place, text_of, why))


def place_of(loaded: Loaded, view: StepView) -> DraftedPlace | None:
    """The drafter's view of the shown step and request; the steps after it tell what the target chose."""
    step = view.step
    enough = (step.config.block_size or 32) + 1  # each step emits at least one token
    places = places_of(loaded.ahead(step.step, step.rank, enough), step.rank)
    rid = step.requests[view.request].rid
    return next((p for p in places if (p.step, p.rid) == (step.step, rid)), None)


def place_text(place: DraftedPlace, text_of: Callable[[int], str], why: str = "") -> str:
    """Where the walk stopped, and how the drafter had rated what the target chose there; ``why`` follows that."""
    ranks = place.target_ranks
    depth = place.accepted
    if depth >= len(place.candidates.tokens):
        return f"Every drafted depth was accepted: {depth} tokens and the bonus."
    if depth >= len(ranks):
        return f"The walk went to depth {depth}; the text ends at depth {len(ranks)}."
    rated = _rated(ranks[depth], offers(place)[depth], place.candidates.tokens.shape[1])
    token = as_code(text_of(place.following[depth]))
    return (
        f"The walk stopped after depth {depth}. At depth {depth + 1} the target chose {token}, in the drafter's eyes "
        f"{rated}{why}. Numbers in cells are probabilities in %, marks are the target's tokens."
    )


def _rated(rank: int | None, offered: int, width: int) -> str:
    """``offered``: candidates of the depth, at most ``width``."""
    if rank is not None:
        return f"its {nth(rank)}"
    if offered == width:
        return f"not among its best {width}"
    return (
        f"not among its {plural(offered, 'candidate')}" if offered else "no candidate: it had none"
    )


def draw_curve(loaded: Loaded, rank: int, palette: Palette) -> None:
    """A whole recording: accepted length by budget, from the marginals alone."""
    st.markdown("**What other budgets would have accepted**", help=explain("budget"))
    curve = loaded.curve(rank)
    if not curve.points:
        st.caption(NOT_RECORDED if not curve.places else "The recording is too short to tell.")
        return
    figure = budget_curve(curve.points, curve.chain, palette, curve.budget)
    st.plotly_chart(figure, width="stretch", config=CONFIG, key="budget curve", theme=None)
    st.caption(curve_text(curve.points, curve.chain))


def curve_text(curve: Sequence[CurvePoint], chain: CurvePoint | None) -> str:
    """The answer to "do trees help this drafter?" in one sentence."""
    best = curve[-1]
    points = ", ".join(
        f"{p.accept_length:.2f} at {p.budget}" for p in curve if p.budget in (8, 16, 32, 64)
    )
    text = f"Mean tokens a step over {best.places} recorded places, no cap on ranks: {points}."
    if chain is None:
        return text
    same = next((p for p in curve if p.budget >= chain.budget), best)
    gain = best.accept_length / chain.accept_length - 1
    equal = same.accept_length / chain.accept_length - 1
    verdict = "a tree helps this drafter" if equal > 0.02 else "a tree of equal size does not help"
    return (
        f"{text} The chain of {chain.budget} accepts {chain.accept_length:.2f}: {verdict} "
        f"({equal:+.0%} at {same.budget} nodes, {gain:+.0%} at {best.budget})."
    )
