"""Run: the engine on a model of your own choice, with or without a fault, text appearing as it is
written.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from engine.decoding.run_settings import METHODS, RunSettings
from engine.drafters.catalog import DRAFTERS
from engine.faults import FAULTS, describe
from engine.trace.errors import TraceFormatError
from workbench import urlstate
from workbench.figures.strip import StepBar, step_strip
from workbench.glossary import explain
from workbench.header import draw_line
from workbench.loading import load
from workbench.outcome import Outcome, mark
from workbench.pages_folder import INSPECTOR, open_page
from workbench.panes.drafter_pane import draw_curve
from workbench.panes.picking import draw
from workbench.runs import Job, State, Written, store
from workbench.theme import palette
from workbench.tokens import for_markdown, message, visible
from workbench.traces import traces_folder
from workbench.verdict import plural

NO_FAULT = "none"
PROMPT = "Write a short poem about the ocean."
DRAFTER_HELP = (
    "dflash: the one that comes with smollm2; oracle: the target itself, made wrong on purpose; "
    "prompt-lookup: what followed the same tokens before"
)
POLL = "500ms"


def draw_run() -> None:
    """The whole page below the header."""
    left, right = st.columns([2, 3], gap="large")
    with left:
        _draw_form()
    with right:
        job = store().get(urlstate.get("run"))
        if job is None:
            _draw_nothing()
        elif job.state is State.RUNNING:
            st.fragment(_follow, run_every=POLL)(job.id)
        else:
            _draw_job(job)


def _draw_nothing() -> None:
    st.markdown("**Text**")
    st.info(
        "Nothing has run yet. Start a run on the left: plain decoding and DDTree appear here side by side, token by "
        "token, and the recording opens in the inspector."
    )
    for job in store().running():
        st.button(
            f"Show the run in progress ({job.key})",
            key=f"show {job.id}",
            on_click=urlstate.put,
            kwargs={"run": job.id},
        )
    st.caption(f"Recordings go to {for_markdown(str(traces_folder()))}")


def _draw_form() -> None:
    with st.form("run", border=True):
        prompts = st.text_area(
            "prompts, one a line", PROMPT, height=90, help="each line is a request of the batch"
        )
        model = st.text_input(
            "model", "smollm2", help="smollm2, a Hugging Face folder, a .gguf file, or org/name"
        )
        first, second = st.columns(2)
        with first:
            method = st.selectbox("method", METHODS)
            drafter = st.selectbox(
                "drafter", DRAFTERS, key="drafter", help=DRAFTER_HELP, accept_new_options=True
            )
            budget = st.number_input(
                "budget, nodes", 1, 256, 16, key="budget", help=explain("budget")
            )
            block_size = st.number_input(
                "block size, tokens", 2, 64, 8, key="block size", help=explain("block size")
            )
            temperature = st.number_input("temperature", 0.0, 2.0, 0.0, 0.1)
            tokens = st.number_input("new tokens", 1, 1024, 48, key="new tokens")
        with second:
            mode = st.selectbox("mode", ("eager", "replay"), help=explain("replay"))
            accuracy = st.slider("accuracy of the oracle drafter", 0.0, 1.0, 0.9, 0.05)
            topk = st.number_input("top-k, 0: none", 0, 64, 4, help=explain("top-k"))
            depth = st.number_input("deepest node, 0: block size - 1", 0, 63, 0, key="max depth")
            spine = st.toggle("spine", False, key="spine", help=explain("spine"))
            captured = st.number_input("captured batch size, 0: any", 0, 64, 0, help="replay only")
            seed = st.number_input("seed", 0, 2**31 - 1, 0)
            reference = st.toggle("dense reference", True, help="plain attention beside every step")
        fault = st.selectbox(
            "fault injected on purpose", (NO_FAULT, *FAULTS), key="fault", format_func=_fault_label
        )
        if st.form_submit_button("Run", type="primary", width="stretch", key="start run"):
            _start(
                prompts=tuple(line.strip() for line in prompts.splitlines() if line.strip()),
                model=model.strip(),
                method=method,
                drafter=drafter,
                accuracy=float(accuracy),
                budget=int(budget),
                topk=int(topk) or None,
                block_size=int(block_size),
                max_depth=int(depth) or None,
                spine=bool(spine),
                temperature=float(temperature),
                seed=int(seed),
                mode=mode,
                captured_bs=int(captured) or None,
                fault=None if fault == NO_FAULT else fault,
                max_new_tokens=int(tokens),
                reference=bool(reference),
            )


def _fault_label(name: str) -> str:
    return name if name == NO_FAULT else f"{name}: {describe(name)}"


def _start(**values: object) -> None:
    try:
        settings = RunSettings(**values)  # type: ignore[arg-type]
    except ValueError as error:
        st.error(message(str(error)))
        return
    shown = store().get(urlstate.get("run"))
    if shown is not None and shown.state is State.RUNNING:
        st.warning("The run on the right goes on: stop it first, or start another in a second tab.")
        return
    urlstate.put(run=store().start(settings).id)
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
    _draw_texts(job, bars)
    if bars is not None:
        loaded = load(job.trace_path)
        draw_curve(loaded, loaded.ranks[0], palette(st.context.theme.type))


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
        urlstate.put(
            trace=job.key, rank=None, step=None, request=None, node=None, left=None, right=None
        )
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


def _draw_texts(job: Job, bars: Sequence[StepBar] | None = None) -> None:
    """``bars``: those of the recording, with faults; else those of the run as it goes."""
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
    shown = bars or job.bars
    if shown:
        lengths = [bar.accept_length / max(bar.requests, 1) for bar in shown if bar.accept_length]
        mean = sum(lengths) / max(len(lengths), 1)
        faulty = sum(bar.faults > 0 for bar in shown)
        st.caption(
            f"accepted length of each step · mean {mean:.2f} tokens a step"
            + (f" · {faulty} of {plural(len(shown), 'step')} at fault" if bars else ""),
            help=explain("accepted length"),
        )
        figure = step_strip(shown, palette(st.context.theme.type), None)
        draw(figure, "run strip", "accepted length of each step")


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
