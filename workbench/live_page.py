"""Live: a directory into which a server records, followed like a film that can be paused.

Covered: what is followed, the verdict, a row a rank, how ranks stand, the newest faulty step, findings as they come.
Not covered: the server itself (:mod:`workbench.panes.server_pane`).
Nothing is read while it is paused, or while the browser shows another tab.
"""

from __future__ import annotations

import time

import streamlit as st

from engine.checks.finding import Finding
from engine.live.state import Faulty, LiveState
from workbench import urlstate
from workbench.following import Following, follow, following
from workbench.header import draw_line
from workbench.live_rows import cause_table, finding_table, headline_of, rank_table
from workbench.outcome import Outcome, mark
from workbench.pages_folder import INSPECTOR, MASK_DIFF, link
from workbench.panes.server_pane import draw_server
from workbench.polling import draw_again_every
from workbench.tokens import for_markdown, legible, message
from workbench.verdict import Headline, Level, sentence

EVERY = 1.0  # seconds
WHERE = "live where"
HELP = "A folder, or a URL of any file system that fsspec knows, such as sftp://host/folder: one *.ddtree.arrow a rank."


def draw_live() -> None:
    """The whole page below the header."""
    _draw_followed()
    st.divider()
    draw_server()


def _draw_followed() -> None:
    _draw_controls()
    now = following()
    if now is None:
        st.info(
            "Nothing is followed yet. Name the directory into which a server's tap writes its traces: each rank's "
            "state, its findings as they come and the first step on which ranks differ appear here."
        )
        return
    if now.playing:
        draw_again_every(EVERY, "live", _look)
    else:
        _draw(now, now.state or now.look())


def _draw_controls() -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="live-controls"):
        st.session_state.setdefault(WHERE, urlstate.get("live") or "")
        st.text_input("directory or URL", key=WHERE, placeholder="/path/to/traces", help=HELP)
        now = following()
        if now is None or now.url != st.session_state[WHERE].strip():
            st.button("▶ Follow", key="live follow", type="primary", on_click=_start)
        elif now.playing:
            st.button("❚❚ Pause", key="live pause", on_click=_play, args=(False,))
        else:
            st.button("▶ Go on", key="live go on", type="primary", on_click=_play, args=(True,))
    problem = st.session_state.pop("live problem", None)
    if problem:
        st.warning(for_markdown(problem))


def _start() -> None:
    where = st.session_state[WHERE].strip()
    try:
        follow(where)
        urlstate.put(live=where)
    except ValueError as error:
        st.session_state["live problem"] = str(error)


def _play(playing: bool) -> None:
    now = following()
    if now is not None:
        now.playing = playing


def _look() -> None:
    """Read what is new, and draw it."""
    now = following()
    if now is not None:
        _draw(now, now.look())


def _draw(now: Following, state: LiveState) -> None:
    """What changes with every look."""
    draw_line(headline_of(state))
    _draw_when(now)
    if state.newest_faulty is not None:
        _draw_faulty(state.newest_faulty)
    if state.ranks:
        st.dataframe(
            rank_table(state.ranks),
            hide_index=True,
            column_config=_columns(),
            key="live ranks",
            placeholder="–",
        )
    _draw_agreement(state)
    _draw_findings(state, list(now.findings))
    if now.events:
        lines = [f"{_clock(at)} {legible(text)}" for at, text in now.events]
        with st.expander(f"what happened to the files ({len(lines)})"):
            st.text("\n".join(lines))


def _draw_when(now: Following) -> None:
    word = "▶ following" if now.playing else "❚❚ paused"
    st.caption(f"{word} · looked at {_clock(now.looked_at)} · {for_markdown(now.url)}")


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def _draw_faulty(faulty: Faulty) -> None:
    """The newest faulty step, pinned, with the ways to it."""
    finding = faulty.finding
    with st.container(border=True, key="live-faulty"):
        cross = mark(Outcome.FAULT).glyph
        st.markdown(f":red[{cross}] **newest faulty step** · {message(sentence(finding))}")
        barred = _barred(faulty)
        if barred is not None:
            st.caption(for_markdown(barred))
            return
        with st.container(horizontal=True):
            link(INSPECTOR, "Step inspector", **_place(faulty, finding))
            link(MASK_DIFF, "Mask diff", **_place(faulty, finding))


def _barred(faulty: Faulty) -> str | None:
    """Why no link can lead to the step; None where one can."""
    if faulty.path is None:
        return f"{faulty.name} lies on another machine: copy it here to open the step."
    try:
        str(faulty.path).encode()
    except UnicodeEncodeError:
        return f"{faulty.name} has a name that is no UTF-8: rename it to open the step."
    return None


def _place(faulty: Faulty, finding: Finding) -> dict[str, str]:
    known = {"step": finding.step, "rank": finding.rank, "request": finding.request}
    known["node"] = finding.where.node
    given = {name: str(value) for name, value in known.items() if value is not None}
    return {"trace": str(faulty.path), **given}


def _draw_agreement(state: LiveState) -> None:
    for agreement in state.agreements:
        level = Level.FAULT if agreement.apart else Level.CLEAN
        draw_line(Headline(level, agreement.sentence))


def _draw_findings(state: LiveState, newest: list[Finding]) -> None:
    if not state.causes:
        return
    st.markdown("**Findings**")
    st.dataframe(cause_table(state), hide_index=True, key="live causes")
    with st.expander(f"as they came, the newest {len(newest)}"):
        st.dataframe(finding_table(newest), hide_index=True, key="live findings")


def _columns() -> dict[str, object]:
    number = st.column_config.NumberColumn
    return {
        "steps/s": number(format="%.1f", help="over the last ten seconds"),
        "accepted": number(
            format="%.2f", help="tokens that a step accepts of a request, root included"
        ),
        "last step ago": number(format="%d s"),
        "written": number(help="by the rank's own word"),
        "dropped": number(help="by the rank's own word"),
        "hooks": number(help="in place, by the rank's own word"),
    }
