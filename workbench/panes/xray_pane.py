"""X-ray: run a kernel on the selected step, and say which of the four masks agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from engine.layout import MaskKind
from workbench import unusable, urlstate
from workbench.background import Job, State
from workbench.glossary import explain
from workbench.outcome import Outcome, mark
from workbench.polling import draw_again_every
from workbench.sides import Side
from workbench.stepview import StepView
from workbench.tokens import for_markdown, message
from workbench.verdict import plural
from workbench.xrays import KERNELS, start_xray, xray_of

POLL = 0.5  # seconds
LISTED = 8  # foreign keys
MEANING = {
    "engine": "this workbench's Triton kernel, in Triton's interpreter",
    "sglang": "SGLang's own Triton kernel, in Triton's interpreter",
    "addressed": "the address formula in torch that the engine decodes with",
}


def draw_xray(view: StepView, side: Side) -> None:
    """The choice of a kernel, the button, and what came of it; ``side``: the selected step and request."""
    kernel = chosen_kernel()
    job = xray_of(view.context, kernel)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "kernel",
            KERNELS,
            width=150,
            help=" · ".join(f"{name}: {text}" for name, text in MEANING.items()),
            **urlstate.widget("kernel", kernel),
        )
        st.button(
            "X-ray this step",
            key="x-ray",
            disabled=job is not None and job.state in (State.RUNNING, State.FINISHED),
            on_click=start_xray,
            args=(view.context, kernel),
            help=explain("measured"),
        )
        if job is not None and job.result is not None:
            _offer_sides(side)
    if urlstate.get("kernel", kernel) not in KERNELS:
        unusable.say("kernel", f"one of {', '.join(KERNELS)}")
    if job is None:
        st.caption(
            "The measured mask is not part of a recording: X-ray runs a kernel on this step's own metadata "
            "and shows what each row really attends to."
        )
    elif job.state is State.RUNNING:
        follow(job, "stop x-ray")
    else:
        _draw_job(job, view)


def chosen_kernel() -> str:
    """The kernel that the URL names."""
    return urlstate.choice("kernel", KERNELS, KERNELS[0])


def _offer_sides(side: Side) -> None:
    """Buttons that put the measured mask into the comparison."""
    found = replace(side, kind=MaskKind.MEASURED).to_text()
    for kind in (MaskKind.INTENDED, MaskKind.ADDRESSED):
        left = replace(side, kind=kind).to_text()
        st.button(
            f"{kind} against measured",
            key=f"x-ray {kind}",
            on_click=urlstate.put,
            kwargs={"left": left, "right": found},
        )


def follow(job: Job, key: str) -> None:
    """Progress and a button that stops the job; the whole page is drawn again when it ends."""
    draw_again_every(POLL, key, lambda: _follow(job, key))


def _follow(job: Job, key: str) -> None:
    if job.state is not State.RUNNING:
        st.rerun(scope="app")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(min(job.fraction, 1.0), for_markdown(job.label))
        st.button("Stop", key=key, on_click=job.stop)


def _draw_job(job: Job, view: StepView) -> None:
    if job.state is State.FAILED:
        st.warning(message(f"This step cannot be X-rayed: {job.error}"))
        return
    if job.state is State.STOPPED:
        st.caption("The X-ray was stopped.")
        return
    whole = job.result.report
    report = whole["requests"][view.request]
    st.markdown(verdict_line(report))
    where = f"{whole['kernel']}, {whole['device']}"
    st.caption(for_markdown(f"{chain_line(report)} · {where}"))
    if report["foreign"]:
        st.caption(for_markdown(foreign_line(report)))


def verdict_line(report: dict[str, Any]) -> str:
    """The sentence of the X-ray, marked where something is wrong."""
    sentence = for_markdown(report["sentence"])
    wrong = report["fault"] != "clean"
    return f":red[{mark(Outcome.FAULT).glyph}] **{sentence}**" if wrong else f"**{sentence}**"


def chain_line(report: dict[str, Any]) -> str:
    """``intended = built ≠ addressed (424 cells) = measured``."""
    text = report["pairs"][0]["left"]
    for pair in report["pairs"]:
        sign = "=" if pair["agree"] else "≠"
        count = f" ({plural(pair['cells'], 'cell')})" if pair["cells"] else ""
        text += f" {sign} {pair['right']}{count}"
    return str(text)


def foreign_line(report: dict[str, Any]) -> str:
    """The first keys beyond the request's own columns that its rows attend to."""
    listed = [f"row {item['row']} attends to {item['key']}" for item in report["foreign"][:LISTED]]
    rest = report["foreign_count"] - len(listed)
    return (
        "beyond the request's own columns: "
        + "; ".join(listed)
        + (f"; {rest} more" if rest else "")
    )
