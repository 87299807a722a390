"""Run: the engine on a model of your own choice, with or without a fault, text appearing as it is
written.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from engine.trace.errors import TraceFormatError
from workbench import urlstate
from workbench.figures.rank_map import LEFT
from workbench.figures.strip import StepBar, step_strip
from workbench.glossary import explain
from workbench.header import draw_line
from workbench.loading import load
from workbench.outcome import Outcome, mark
from workbench.pages_folder import INSPECTOR, open_page
from workbench.panes.drafter_pane import draw_curve
from workbench.panes.picking import draw
from workbench.panes.walk_pane import draw_walk, draw_walks, pick_step
from workbench.polling import draw_again_every
from workbench.run_form import draw_form
from workbench.runs import Job, State, Written, store
from workbench.theme import palette
from workbench.tokens import for_markdown, message, visible
from workbench.traces import traces_folder
from workbench.verdict import plural

POLL = 0.5  # seconds


def draw_run() -> None:
    """The whole page below the header."""
    left, right = st.columns([2, 3], gap="large")
    with left:
        _draw_start()
    with right:
        job = store().get(urlstate.get("run"))
        if job is None:
            _draw_nothing()
        elif job.state is State.RUNNING:
            draw_again_every(POLL, "run", lambda: _follow(job.id))
        else:
            _draw_job(job)


def _draw_nothing() -> None:
    st.markdown("**Text**")
    st.info(
        "Nothing has run yet. Start a run on the left: plain decoding and DDTree appear here side by side, token by "
        "token, then what the drafter believed; one click opens the recording in the inspector."
    )
    for job in store().running():
        st.button(
            f"Show the run in progress ({job.key})",
            key=f"show {job.id}",
            on_click=urlstate.put,
            kwargs={"run": job.id},
        )
    if unknown := urlstate.get("run"):
        st.caption(
            f"This server knows no run {for_markdown(unknown[:40])}: runs are forgotten when it ends. "
            "A recording that was kept can be picked above."
        )
    st.caption(f"Recordings go to {for_markdown(str(traces_folder()))}")


def _draw_start() -> None:
    settings = draw_form()
    if settings is None:
        return
    shown = store().get(urlstate.get("run"))
    if shown is not None and shown.state is State.RUNNING:
        st.warning("The run on the right goes on: stop it first, or start another in a second tab.")
        return
    urlstate.put(run=store().start(settings).id, run_step=None, run_request=None)
    st.rerun()


def _follow(job_id: str) -> None:
    """Redraws itself while the run goes on, the whole page when it ends."""
    job = store().get(job_id)
    if job is None or job.state is not State.RUNNING:
        st.rerun(scope="app")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(min(job.fraction, 1.0), for_markdown(job.label))
        st.button(
            "Stop", key="stop run", on_click=job.stop, help="what was recorded so far is kept"
        )
    _draw_texts(job)
    if job.bars:
        _draw_strip(job.bars)
        draw_walks(job.walks, job.settings.drafter, palette(st.context.theme.type), live=True)


def _draw_job(job: Job) -> None:
    st.markdown(f"**This run** · recording {for_markdown(job.key)}")
    bars = None
    if job.state is State.FAILED:
        st.error(message(job.error))
        st.caption(
            "Change the settings on the left and run again, or open another recording above."
        )
    else:
        bars = _draw_result(job)
    _draw_texts(job)
    if bars is not None:
        _draw_steps(job, bars)
    elif job.bars:
        _draw_strip(job.bars)


def _draw_steps(job: Job, bars: Sequence[StepBar]) -> None:
    """All steps of a recording, the one that is picked, and what other budgets would have made of them."""
    loaded, colours = load(job.trace_path), palette(st.context.theme.type)
    place = st.container()
    walk = draw_walks(job.walks, job.settings.drafter, colours)
    with place:
        _draw_strip(bars, checked=True, current=None if walk is None else walk.step)
    if walk is not None:
        draw_walk(loaded, job.walks, walk, colours)
    draw_curve(loaded, loaded.ranks[0], colours)


def _draw_result(job: Job) -> Sequence[StepBar] | None:
    """What came of a run; its strip with the steps at fault, None where it cannot be read back."""
    if job.state is State.STOPPED:
        st.warning(f"Stopped after {len(job.bars)} recorded steps; they are kept.")
    elif job.summary is not None:
        plain, tree = job.summary.plain_seconds, job.summary.tree_seconds
        seconds = f"plain decoding {plain:.1f} s, {job.settings.method} {tree:.1f} s"
        st.markdown(f"**{result_text(job)}** · {seconds}")
    if not job.bars:
        st.caption("No verify step was recorded, so there is nothing to inspect.")
        return None
    try:
        loaded = load(job.trace_path)
    except (TraceFormatError, OSError, ValueError) as error:
        st.warning(message(f"The recording cannot be read back: {error}"))
        return None
    draw_line(loaded.headline)
    if st.button("Open in the inspector", type="primary", key="open result"):
        picked = {"step": urlstate.get("run_step"), "request": urlstate.get("run_request")}
        urlstate.put(trace=job.key, rank=None, node=None, left=None, right=None, **picked)
        open_page(INSPECTOR)
    return loaded.bars(loaded.ranks[0])


def result_text(job: Job) -> str:
    """Whether the texts are plain decoding's, token by token."""
    assert job.summary is not None
    differing = [r for r in job.summary.requests if r.first_difference is not None]
    total = len(job.summary.requests)
    if not differing:
        return f"{total} of {total} texts are plain decoding's, token by token"
    first = differing[0]
    cross = mark(Outcome.FAULT).glyph
    return (
        f":red[{cross}] {len(differing)} of {total} texts differ from plain decoding's, "
        f"{for_markdown(first.rid)} first, at token {first.first_difference}"
    )


def _draw_texts(job: Job) -> None:
    for rid in dict.fromkeys((*job.plain, *job.tree)):
        plain, tree = job.plain.get(rid, Written()), job.tree.get(rid, Written())
        at = first_difference(plain.tokens, tree.tokens)
        left, right = st.columns(2)
        with left:
            st.caption(f"{for_markdown(rid)} · plain decoding · {len(plain.tokens)} tokens")
            st.code(marked(job, plain, at), language=None, wrap_lines=True)
        with right:
            note = (
                ""
                if at is None
                else f" · :red[{mark(Outcome.FAULT).glyph}] differs from token {at}"
            )
            st.caption(
                f"{for_markdown(rid)} · {job.settings.method} · {len(tree.tokens)} tokens{note}"
            )
            st.code(marked(job, tree, at), language=None, wrap_lines=True)


def _draw_strip(
    bars: Sequence[StepBar], *, checked: bool = False, current: int | None = None
) -> None:
    """``checked``: the bars know the faults of their steps. A click picks a step where one is ``current``."""
    lengths = [bar.accept_length / max(bar.requests, 1) for bar in bars if bar.accept_length]
    mean = sum(lengths) / max(len(lengths), 1)
    faulty = sum(bar.faults > 0 for bar in bars)
    st.caption(
        f"accepted length of each step · mean {mean:.2f} tokens a step"
        + (f" · {faulty} of {plural(len(bars), 'step')} at fault" if checked else ""),
        help=explain("accepted length"),
    )
    figure = step_strip(bars, palette(st.context.theme.type), current, left=LEFT)
    pick = None if current is None else pick_step
    draw(figure, "run strip", "accepted length of each step", pick)


def first_difference(plain: tuple[int, ...], tree: tuple[int, ...]) -> int | None:
    """First token at which the texts part, as far as both go."""
    pairs = enumerate(zip(plain, tree, strict=False))
    return next((i for i, (a, b) in pairs if a != b), None)


def marked(job: Job, written: Written, at: int | None) -> str:
    """The text; from the first token that differs on as ``⟦token⟧`` and the rest."""
    if at is None or at >= len(written.tokens) or job.target is None:
        return written.text or "…"
    decode = job.target.tokenizer.decode
    before, upto = decode(written.tokens[:at]), decode(written.tokens[: at + 1])
    rest = written.text[len(upto) :]
    return f"{before}⟦{visible(upto[len(before) :])}⟧{rest}"
