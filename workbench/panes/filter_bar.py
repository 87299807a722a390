"""The filter of the findings page: its widgets write the URL, so that a copied link shows the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from engine.checks.finding import Finding
from workbench import urlstate
from workbench.finding_filter import (
    EVERYTHING,
    VERDICTS,
    FindingFilter,
    diagnosis_of,
    join,
    parse,
    strangers,
)
from workbench.loaded import Loaded
from workbench.tokens import for_markdown, legible, shorten
from workbench.verdict import EFFECTS

MOST_OPTIONS = 500  # of one widget; others can be typed
SAID = 200  # characters of one part of the filter, in words
WORDS = {str(effect): word for effect, word in EFFECTS.items()}


def asked() -> tuple[FindingFilter, str]:
    """The filter as the URL states it, and what of it makes no sense."""
    return parse({name: urlstate.get(name) for name in urlstate.FILTER})


def clear() -> None:
    """Show everything again."""
    urlstate.put(**dict.fromkeys(urlstate.FILTER))


def draw_filter(loaded: Loaded, wanted: FindingFilter, problem: str) -> None:
    """One row of widgets; those for requests and ranks only where there are several."""
    found = loaded.report.findings
    names = _names(found)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="filter"):
        _text("find", "words", "words of a message", 210)
        _several("check", "checks", wanted.checks, names["checks"], 190)
        _several("diagnosis", "diagnoses", wanted.diagnoses, names["diagnoses"], 220)
        _several("effect", "effects", wanted.effects, names["effects"], 170)
        if len(loaded.requests) > 1 or wanted.requests:
            requests = {rid: legible(rid) for rid in loaded.requests[:MOST_OPTIONS]}
            _several("request", "requests", wanted.requests, requests, 150)
        if len(loaded.ranks) > 1 or wanted.ranks:
            ranks = {str(rank): f"rank {rank}" for rank in loaded.ranks}
            _several("rank", "ranks", wanted.ranks, ranks, 130)
        _text("steps", "steps", "3, 5-9", 120)
    known = {
        **names,
        "effects": WORDS,
        "requests": frozenset(loaded.requests),
        "ranks": frozenset(map(str, loaded.ranks)),
    }
    for sentence in filter(None, (problem, strangers(wanted, known))):
        st.caption(for_markdown(sentence))


def draw_verdicts(wanted: FindingFilter) -> None:
    """All verdicts or one of them."""
    st.segmented_control(
        "verdict",
        VERDICTS,
        label_visibility="collapsed",
        required=True,
        **urlstate.widget("show", wanted.verdict),
    )


def _names(findings: Sequence[Finding]) -> dict[str, dict[str, str]]:
    """What can be chosen: value and label, in order of time."""
    return {
        "checks": {f.check: f"{f.check} {f.name}" for f in findings},
        "diagnoses": {d: d for d in dict.fromkeys(map(diagnosis_of, findings))},
        "effects": {str(e): WORDS[e] for e in dict.fromkeys(f.effect for f in findings)},
    }


def _several(
    label: str, name: str, chosen: Sequence[str], names: Mapping[str, str], width: int
) -> None:
    key = f"filter {name}"
    st.session_state[key] = list(chosen)
    st.multiselect(
        label,
        [*names, *(value for value in dict.fromkeys(chosen) if value not in names)],
        format_func=lambda value: names.get(value) or WORDS.get(value) or legible(value),
        accept_new_options=name == "requests",
        placeholder="any",
        width=width,
        key=key,
        on_change=_changed,
        args=(name, key),
    )


def _text(label: str, name: str, placeholder: str, width: int) -> None:
    key = f"filter {name}"
    st.session_state[key] = urlstate.get(name) or ""
    st.text_input(
        label,
        placeholder=placeholder,
        max_chars=urlstate.MAX_LENGTH,
        width=width,
        key=key,
        on_change=_changed,
        args=(name, key),
    )


def _changed(name: str, key: str) -> None:
    value = st.session_state[key]
    urlstate.put(**{name: (value if isinstance(value, str) else join(value)) or None})


def words_of(wanted: FindingFilter) -> str:
    """``check I4, steps 3, 5-9``: the filter in words."""
    steps = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in wanted.steps)
    parts = (
        ("", "" if wanted.verdict == EVERYTHING else wanted.verdict),
        ("words", " ".join(wanted.words)),
        ("check", ", ".join(wanted.checks)),
        ("diagnosis", ", ".join(wanted.diagnoses)),
        ("effect", ", ".join(WORDS.get(e, e) for e in wanted.effects)),
        ("request", ", ".join(wanted.requests)),
        ("rank", ", ".join(wanted.ranks)),
        ("steps", steps),
    )
    return " · ".join(f"{name} {shorten(value, SAID)}".strip() for name, value in parts if value)
