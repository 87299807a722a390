"""The server panel of the Live page: prompts asked twice at temperature 0, and what the server says of itself.

Looks are hints: a wrong mask writes fluent text too. Answers are shown as text, whatever is in them.
"""

from __future__ import annotations

import streamlit as st

from engine.server.trial import PROMPTS, Answer, Asked, Endpoint, Trial
from workbench import server_jobs
from workbench.background import Job, State
from workbench.figures.drafts_histogram import drafts_histogram
from workbench.header import draw_line
from workbench.panes.picking import draw
from workbench.polling import draw_again_every
from workbench.theme import palette
from workbench.tokens import as_code, as_lines, for_markdown, legible, shorten
from workbench.verdict import Headline, Level, plural

POLL = 0.5  # seconds
SHOWN = 20_000  # characters of an answer
MEANING = {
    Endpoint.CHAT: "/v1/chat/completions, with the model's chat template",
    Endpoint.GENERATE: "SGLang's /generate: the words as they are, with token ids and meta_info",
}


def draw_server() -> None:
    """The form, the trial in progress, or what came of it."""
    st.markdown("**Server**")
    _draw_form()
    problem = st.session_state.pop(server_jobs.PROBLEM, None)
    if problem:
        st.warning(for_markdown(problem))
    job = server_jobs.current_job()
    if job is None:
        st.caption(
            "Not asked yet. Each prompt is asked twice at temperature 0: both answers stand side by side, with what "
            "the server says of its acceptance. Nothing is sent before the button is pressed."
        )
    elif job.state is State.RUNNING:
        draw_again_every(POLL, "server", lambda: _follow(job))
    else:
        _draw_job(job)


def _draw_form() -> None:
    with st.form("server form", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            url = st.text_input("base URL", key="server url", placeholder="http://127.0.0.1:30000")
            endpoint = st.selectbox(
                "asked through",
                [str(kind) for kind in Endpoint],
                key="server endpoint",
                width=150,
                help=" · ".join(f"{kind}: {text}" for kind, text in MEANING.items()),
            )
            tokens = st.number_input("tokens", 1, 32768, 128, key="server tokens", width=130)
            key = st.text_input(
                "API key",
                key="server key",
                type="password",
                width=160,
                help="If the server asks for one. It is kept in this tab alone.",
            )
            pressed = st.form_submit_button("Ask twice", type="primary", key="server ask")
        left, right = st.columns(2)
        prompts = [
            side.text_area("prompt", text, key=f"server prompt {k}", height=70)
            for k, (side, text) in enumerate(zip((left, right), PROMPTS, strict=True))
        ]
    if pressed:
        held = server_jobs.current_job()
        if held is not None:
            held.stop()
        server_jobs.start(url, prompts, endpoint, int(tokens), key.strip())


def _follow(job: Job) -> None:
    if job.state is not State.RUNNING:
        st.rerun(scope="app")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        words = f"{job.label} · {server_jobs.seconds():.0f} s"
        st.progress(min(max(job.fraction, 0.0), 1.0), as_code(words))
        st.button("Stop", key="server stop", on_click=job.stop)


def _draw_job(job: Job) -> None:
    if job.state is State.STOPPED:
        st.caption("It was stopped.")
    elif job.state is State.FAILED:
        st.warning(f"The server could not be asked: {as_code(job.error)}")
    else:
        draw_trial(job.result)


def draw_trial(trial: Trial) -> None:
    """What came of one server."""
    level, said = verdict_of(trial)
    draw_line(Headline(level, said))
    for number, asked in enumerate(trial.asked):
        _draw_asked(number, asked)
    told = [{"name": name, "value": f"{value:g}"} for name, value in trial.metrics]
    told += [{"name": name, "value": legible(value)} for name, value in trial.settings]
    if told:
        with st.expander(f"what the server says of itself ({len(told)})"):
            st.dataframe(told, hide_index=True, key="server facts")
    else:
        st.caption("It tells neither /metrics nor /server_info.")


def verdict_of(trial: Trial) -> tuple[Level, str]:
    """Level and one sentence. That answers differ is a fact, not a fault: a near-tie may do it."""
    total, same = len(trial.asked), sum(asked.same for asked in trial.asked)
    waited = f" (ready after {trial.waited:.0f} s)" if trial.waited >= 1 else ""
    if trial.same:
        return Level.CLEAN, f"{plural(total, 'prompt')} answered the same twice{waited}"
    return Level.LATENT, f"{total - same} of {plural(total, 'prompt')} answered differently{waited}"


def _draw_asked(number: int, asked: Asked) -> None:
    st.markdown(f"prompt {number + 1}: {as_code(shorten(asked.prompt, 200))}")
    for column, answer in zip(st.columns(2), asked.answers, strict=False):
        with column:
            st.code(
                as_lines(answer.text[:SHOWN]) or " ", language=None, wrap_lines=True, height=180
            )
            st.caption(for_markdown(answer_line(answer)))
    if asked.same:
        st.caption("both answers are the same")
    else:
        st.caption(for_markdown(difference_line(asked)))
    for signal in dict.fromkeys(signal for each in asked.signals for signal in each):
        count = plural(signal.count, "place")
        words = for_markdown(f"hint, no verdict: {signal.kind}, {count}, first")
        st.caption(f"{words} {as_code(signal.excerpt)}")
    told = asked.answers[0].speculation
    if told is not None and told.histogram is not None:
        figure = drafts_histogram(told.histogram, palette(st.context.theme.type))
        with st.columns(2)[0]:
            draw(figure, f"server histogram {number}", "verify steps by correct drafts")


def difference_line(asked: Asked) -> str:
    """Where both answers part, with what each says there."""
    place = asked.first_character
    parts = [] if place is None else [f"character {place}"]
    parts += [] if asked.first_token is None else [f"token {asked.first_token}"]
    texts = (
        [repr(answer.text[place : place + 20]) for answer in asked.answers]
        if place is not None
        else []
    )
    said = f": {' against '.join(texts)}" if texts else ""
    return f"they part at {', '.join(parts)}{said}"


def answer_line(answer: Answer) -> str:
    """Tokens, time, speed and acceptance of one answer."""
    parts = ["tokens not told" if answer.tokens is None else plural(answer.tokens, "token")]
    parts.append(f"{answer.seconds:.2f} s")
    if answer.tokens_a_second is not None:
        parts.append(f"{answer.tokens_a_second:.1f} tokens/s")
    told = answer.speculation
    if told is None:
        return " · ".join([*parts, "no meta_info on speculation"])
    if told.accept_length is not None:
        parts.append(f"{told.accept_length:.2f} tokens a verify step")
    if told.correct_drafts is not None and told.proposed_drafts is not None:
        parts.append(f"{told.correct_drafts} of {told.proposed_drafts} drafts correct")
    return " · ".join(parts)
