"""The header that all pages share: recording, rank, step, request, node; and the verdict line below
it.
"""

from __future__ import annotations

import streamlit as st

from workbench import traces, urlstate
from workbench.current import Current
from workbench.glossary import explain
from workbench.loaded import Loaded
from workbench.loading import read_on
from workbench.outcome import Outcome, mark
from workbench.pages_folder import INSPECTOR, link
from workbench.selection import Selection, go_to, place_of
from workbench.tokens import for_markdown, legible, message
from workbench.verdict import Headline, Level

PATH_HELP = "Pick a recording, or type the path of one: .ddtree.arrow, .jsonl, a snapshot, or a folder of ranks."


def draw_header(current: Current, *, calm: bool = False) -> None:
    """Pickers, verdict, and one sentence where something is missing. ``calm``: the page is not about
    the recording, so that its verdict is one line and a link.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="header"):
        _trace_picker(current)
        if current.loaded is not None and current.selection is not None:
            _rank_picker(current.loaded, current.selection)
            _step_picker(current.loaded, current.selection)
            _request_picker(current, current.selection)
    for note in (*urlstate.too_long(), *urlstate.repeated()):
        st.caption(for_markdown(note))
    if current.loaded is None:
        _draw_missing(current)
    elif calm:
        _draw_open_recording(current, current.loaded)
    else:
        draw_verdict(current, current.loaded)


def _trace_picker(current: Current) -> None:
    known = {entry.key: entry.label for entry in traces.entries()}
    key = current.entry.key if current.entry else None
    options = [*known, *([] if key is None or key in known else [key])]
    st.selectbox(
        "recording",
        options,
        format_func=lambda name: legible(known.get(name, name)),
        accept_new_options=True,
        placeholder="path of a recording",
        help=PATH_HELP,
        width=330 if current.loaded is None or len(current.loaded.ranks) < 2 else 240,
        **_selecting("trace", key),
    )


def _selecting(name: str, value: object) -> dict[str, object]:
    """A widget of the selection; another recording starts at its own first fault."""
    key = f"header {name}"
    st.session_state[key] = value
    return {"key": key, "on_change": _selected, "args": (name, key)}


def _selected(name: str, key: str) -> None:
    value = st.session_state[key]
    if name == "trace":
        urlstate.put(trace=value, rank=None, step=None, request=None, node=None)
    else:
        urlstate.put(**{name: value})


def _rank_picker(loaded: Loaded, selection: Selection) -> None:
    if len(loaded.ranks) > 1:
        st.selectbox(
            "rank",
            loaded.ranks,
            width=80,
            help=explain("rank"),
            **_selecting("rank", selection.rank),
        )


def _step_picker(loaded: Loaded, selection: Selection) -> None:
    steps, here = loaded.steps_of(selection.rank), selection.step
    faulty = loaded.faulty_steps(selection.rank)
    before, after = [s for s in steps if s < here], [s for s in steps if s > here]
    bad_before, bad_after = [s for s in faulty if s < here], [s for s in faulty if s > here]
    cross = mark(Outcome.FAULT).glyph
    _jump("first", before[:1], "Home", "first step")
    _jump("◀", before[-1:], "Left", "previous step")
    st.number_input(
        f"step of {steps[0]} … {steps[-1]}",
        min_value=steps[0],
        max_value=steps[-1],
        step=1,
        width=150,
        help=explain("step"),
        **_selecting("step", here),
    )
    _jump("▶", after[:1], "Right", "next step")
    _jump("last", after[-1:], "End", "last step")
    _jump(f"◀ {cross}", bad_before[-1:], "Shift+Left", "previous fault")
    _jump(f"{cross} ▶", bad_after[:1], "Shift+Right", "next fault")
    _jump(f"first {cross}", [s for s in faulty[:1] if s != here], None, "first fault")


def _jump(label: str, target: list[int], shortcut: str | None, meaning: str) -> None:
    """A button to a step; disabled where there is none. The shortcut is named in the tooltip."""
    st.button(
        label,
        key=f"jump {meaning}",
        disabled=not target,
        shortcut=shortcut,
        help=f"{meaning} ({shortcut.replace('Left', '←').replace('Right', '→')})"
        if shortcut
        else meaning,
        on_click=_go_to_step,
        args=(target[0] if target else None,),
    )


def _go_to_step(step: int | None) -> None:
    if step is not None:
        urlstate.put(step=step)


def _request_picker(current: Current, selection: Selection) -> None:
    context, view = current.context, current.view
    assert context is not None
    rids = [request.rid for request in context.step.requests]
    if len(rids) > 1:
        st.selectbox(
            "request",
            rids,
            format_func=legible,
            width=140,
            help=explain("request"),
            **_selecting("request", selection.rid),
        )
    if view is not None:
        st.number_input(
            f"node of 0 … {view.q_len - 1}",
            min_value=0,
            max_value=view.q_len - 1,
            step=1,
            width=130,
            placeholder="none",
            help=explain("node"),
            **_selecting("node", selection.node),
        )


def draw_verdict(current: Current, loaded: Loaded) -> None:
    """The sentence, what follows from it, and the way to the place."""
    line = loaded.headline
    with st.container(horizontal=True, vertical_alignment="center", key="verdict"):
        draw_line(line)
        if line.finding is not None:
            rid, node = loaded.place_of(line.finding)
            st.button(
                "Go there",
                key="go there",
                type="primary",
                help="select the step, request and node of this finding",
                on_click=go_to,
                args=(line.finding,),
                kwargs={"rid": rid, "node": node},
            )
    _draw_notes(current)
    if loaded.trace.truncated:
        st.caption("The recording ends within a step: the complete steps before it are shown.")


def _draw_open_recording(current: Current, loaded: Loaded) -> None:
    """What is open above, in one quiet line that leads to the place."""
    assert current.entry is not None
    line = loaded.headline
    place = {} if line.finding is None else place_of(line.finding, *loaded.place_of(line.finding))
    sign = SIGNS.get(line.level, "")
    if line.level is Level.FAULT:
        sign = f":red[{sign}]"
    name = for_markdown(current.entry.key)
    with st.container(key="verdict"):
        text = f"Open recording: **{name}** · {sign} {message(line.sentence)} →"
        link(INSPECTOR, text, **place)
    _draw_notes(current)


def _draw_notes(current: Current) -> None:
    """What of the URL could not be had."""
    for note in current.selection.notes if current.selection else ():
        st.caption(for_markdown(note))


SIGNS = {Level.FAULT: mark(Outcome.FAULT).glyph, Level.CLEAN: "✓"}


def draw_line(line: Headline) -> None:
    """The verdict in the colour of its level."""
    draw = {
        Level.FAULT: st.error,
        Level.LATENT: st.warning,
        Level.CLEAN: st.success,
        Level.EMPTY: st.info,
    }[line.level]
    sign = f"{SIGNS[line.level]} " if line.level in SIGNS else ""
    more = "".join(f"  \n{message(text)}" for text in (line.cause, line.detail) if text)
    draw(f"{sign}**{message(line.sentence)}**{more}")


def _draw_missing(current: Current) -> None:
    if current.problem:
        st.warning(message(current.problem))
        if current.stopped:
            st.button("Read it", key="read on", on_click=read_on)
        st.caption("Pick another recording above, type a path, import a snapshot, or make a run.")
    else:
        st.info(
            "No recording yet: make a run, import a snapshot, or type the path of a recording above."
        )
