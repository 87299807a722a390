"""The drafter: its marginals at one step beside the target's choices, and what other budgets would have accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from engine.decoding.acceptance_curve import (
    CurvePoint,
    DraftedPlace,
    acceptance_curve,
    drafted_places,
)
from engine.step import VerifyStep
from workbench.figures.base import CONFIG
from workbench.figures.drafter import budget_curve, marginals
from workbench.glossary import explain
from workbench.stepview import StepView
from workbench.theme import Palette

NOT_RECORDED = (
    "The drafter's marginals were not recorded (workbench.draft_tokens): `ddtree run` and the Run page record them."
)


def draw_marginals(view: StepView, steps: Sequence[VerifyStep], palette: Palette) -> None:
    """One step. ``steps``: all of the recording, for what the target chose later."""
    st.markdown("**Drafter**", help=explain("drafter's rank"))
    place = place_of(view, steps)
    if place is None:
        st.caption(NOT_RECORDED)
        return
    figure = marginals(place, palette, view.text_of)
    st.plotly_chart(figure, width="stretch", config=CONFIG, key="marginals", theme=None)
    st.caption(place_text(place, view.text_of))


def place_of(view: StepView, steps: Sequence[VerifyStep]) -> DraftedPlace | None:
    """The drafter's view of the shown step and request."""
    step = view.step
    later = [other for other in steps if other.rank == step.rank and other.step >= step.step]
    places = drafted_places(later[: len_ahead(step)], rank=step.rank)
    rid = step.requests[view.request].rid
    return next((p for p in places if (p.step, p.rid) == (step.step, rid)), None)


def len_ahead(step: VerifyStep) -> int:
    """Steps that are enough to know every depth's token: each emits at least one."""
    return (step.config.block_size or 32) + 1


def place_text(place: DraftedPlace, text_of: Callable[[int], str]) -> str:
    """Where the walk stopped, and how the drafter had rated what the target chose there."""
    ranks = place.target_ranks
    depth = place.accepted
    if depth >= len(place.candidates.tokens):
        return f"Every drafted depth was accepted: {depth} tokens and the bonus."
    if depth >= len(ranks):
        return f"The walk stopped after depth {depth}, where the recording ends."
    rank, width = ranks[depth], place.candidates.tokens.shape[1]
    rated = f"rank {rank}" if rank is not None else f"not among its best {width}"
    token = text_of(place.following[depth])
    return (
        f"The walk stopped after depth {depth}. At depth {depth + 1} the target chose `{token}`, in the drafter's eyes "
        f"{rated}; numbers in cells are probabilities in %, marks are the target's tokens."
    )


def draw_curve(steps: Sequence[VerifyStep], palette: Palette, key: str) -> None:
    """A whole recording: accepted length by budget, from the marginals alone."""
    st.markdown("**What other budgets would have accepted**", help=explain("budget"))
    places = drafted_places(steps, rank=steps[0].rank if steps else 0)
    curve = acceptance_curve(places)
    if not curve:
        st.caption(NOT_RECORDED if not places else "The recording is too short to tell.")
        return
    chain = chain_point(places)
    figure = budget_curve(curve, chain, palette, steps[0].config.budget)
    st.plotly_chart(figure, width="stretch", config=CONFIG, key=key, theme=None)
    st.caption(curve_text(curve, chain))


def chain_point(places: Sequence[DraftedPlace]) -> CurvePoint | None:
    """The chain as long as the block."""
    length = len(places[0].candidates.tokens)
    return next(iter(acceptance_curve(places, budgets=[length], topk=1)), None)


def curve_text(curve: Sequence[CurvePoint], chain: CurvePoint | None) -> str:
    """The answer to "do trees help this drafter?" in one sentence."""
    best = curve[-1]
    points = ", ".join(f"{p.accept_length:.2f} at {p.budget}" for p in curve if p.budget in (8, 16, 32, 64))
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
