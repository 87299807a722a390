"""A run's drafter against its target: the whole run as a map, and the step that is picked in it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from workbench import unusable, urlstate
from workbench.figures.rank_map import rank_map
from workbench.glossary import explain
from workbench.loaded import Loaded
from workbench.panes.drafter_pane import draw_marginals
from workbench.panes.picking import draw
from workbench.stepview import view_of
from workbench.theme import Palette
from workbench.tokens import for_markdown
from workbench.verdict import plural
from workbench.walk_ends import ends_text
from workbench.walks import Walk, chosen_request, chosen_step, requests_of

MAP_ALT = "rank of the target's token by step and depth"


def draw_walks(
    walks: Sequence[Walk], drafter: str, palette: Palette, *, live: bool = False
) -> Walk | None:
    """The map of one request, the request to choose; the selected walk. ``live``: nothing can be picked yet."""
    st.markdown("**Drafter against target**", help=explain("drafter against target"))
    if missing := missing_text(walks, drafter):
        st.caption(missing)
        return None
    mine = _draw_request(walks)
    st.caption(summary_text(mine))
    walk = None if live else selected_walk(mine)
    step = None if walk is None else walk.step
    draw(rank_map(mine, palette, step), "rank map", MAP_ALT, None if live else pick_step)
    return walk


def draw_walk(loaded: Loaded, walks: Sequence[Walk], walk: Walk, palette: Palette) -> None:
    """The selected step below the map: a slider, and the drafter's candidates beside the target's choices."""
    steps = [other.step for other in walks if other.rid == walk.rid]
    if len(steps) > 1:
        st.select_slider(
            "step of this run",
            steps,
            help=explain("step"),
            **urlstate.widget("run_step", walk.step),
        )
    rank = loaded.ranks[0]
    context = loaded.context(walk.step, rank)
    rids = [request.rid for request in context.step.requests]
    found = loaded.findings_by_step.get((walk.step, rank), ())
    draw_marginals(loaded, view_of(context, rids.index(walk.rid), found), palette)


def pick_step(step: int) -> None:
    """Select a step of the run."""
    urlstate.put(run_step=step)


def selected_walk(mine: Sequence[Walk]) -> Walk:
    """The walk of the step that the URL names, the last one where it names none."""
    asked = urlstate.get("run_step")
    if asked is not None and asked not in {str(walk.step) for walk in mine}:
        unusable.say("run_step", f"a step of this request, {mine[0].step} … {mine[-1].step}")
    step = chosen_step(mine, asked)
    return next(walk for walk in mine if walk.step == step)


def _draw_request(walks: Sequence[Walk]) -> list[Walk]:
    rids = requests_of(walks)
    asked = urlstate.get("run_request")
    if asked is not None and asked not in rids:
        unusable.say("run_request", f"a request of this run as {rids[0]}")
    rid = chosen_request(walks, asked)
    if len(rids) > 1:
        st.selectbox(
            "request",
            rids,
            width=140,
            help=explain("request"),
            **urlstate.widget("run_request", rid),
        )
    return [walk for walk in walks if walk.rid == rid]


def missing_text(walks: Sequence[Walk], drafter: str) -> str | None:
    """Why there is nothing to show, in one sentence; None where there is something."""
    name = for_markdown(drafter)
    if not walks:
        return f"The drafter {name} recorded no candidates, so there is nothing to compare the target's tokens with."
    if not any(walk.candidates for walk in walks):
        steps = plural(len({walk.step for walk in walks}), "step")
        return f"The drafter {name} offered no candidate in {steps}: every step wrote the target's own token alone."
    return None


def summary_text(walks: Sequence[Walk]) -> str:
    """The map in two sentences: how often the drafter's best token was right, and why walks stopped."""
    ranks = [rank for walk in walks for rank in walk.ranks]
    best = sum(rank == 0 for rank in ranks)
    stopped = [walk for walk in walks if walk.stopped is not None]
    text = f"The target chose the drafter's best token at {best} of {plural(len(ranks), 'depth')} it was asked about."
    if stopped:
        why = ends_text([walk.end for walk in stopped], stopped[0].topk, stopped[0].budget)
        text += f" {plural(len(stopped), 'walk')} of {len(walks)} stopped early"
        text += f": {why}." if why else "."
    return text
