"""State that lives in the URL: what is selected, and how each page looks at it.

The query string is the one source of truth. Streamlit drops it when the user changes the page, so
the session keeps a copy and puts it back; copying the URL reproduces the view on every page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

SELECTION = ("trace", "rank", "step", "request", "node")
FILTER = ("show", "checks", "diagnoses", "effects", "requests", "ranks", "steps", "words")
RUN = ("run_step", "run_request")  # what is picked in the run that the Run page shows
LAB = ("lab", "cell")  # the experiment that the Isolate page shows, and the cell picked in it
VIEWS = (
    "mask",
    "prefix",
    "weights",
    "left",
    "right",
    "kernel",
    "rows",
    "columns",
    "run",
    "live",
    *LAB,
    *RUN,
    *FILTER,
)
KNOWN = (*SELECTION, *VIEWS)
COPY = "url copy"
MAX_LENGTH = 20_000  # characters of one value; a longer one is as if it were not there


def sync() -> None:
    """Start of every run: an empty query string is filled from the session's copy."""
    given = _held()
    if not any(name in given for name in SELECTION):
        kept = {n: v for n, v in st.session_state.get(COPY, {}).items() if n not in given}
        for name, value in kept.items():
            st.query_params[name] = value
        given = {**kept, **given}
    st.session_state[COPY] = given


def get(name: str, default: str | None = None) -> str | None:
    """A value of the URL."""
    value = st.query_params.get(name)
    return default if value is None or len(value) > MAX_LENGTH else value


def _held() -> dict[str, str]:
    return {name: value for name in KNOWN if (value := get(name)) is not None}


def too_long() -> list[str]:
    """One sentence for each value that is too long to be used."""
    lengths = {name: len(st.query_params.get(name, "")) for name in KNOWN}
    return [
        f"{name}: expected at most {MAX_LENGTH:,} characters, found {length:,}; it is ignored"
        for name, length in lengths.items()
        if length > MAX_LENGTH
    ]


def repeated() -> list[str]:
    """One sentence for each name that the URL gives more than once."""
    counts = {name: len(st.query_params.get_all(name)) for name in KNOWN}
    return [
        f"{name}: expected once, found {count:,} times; the last one is used"
        for name, count in counts.items()
        if count > 1
    ]


def put(**values: Any) -> None:
    """Set values; None removes one."""
    for name, value in values.items():
        assert name in KNOWN, name
        if value is None:
            st.query_params.pop(name, None)
        else:
            st.query_params[name] = str(value)
    st.session_state[COPY] = _held()


def put_widget(name: str, key: str) -> None:
    """``on_change`` of a widget: its value goes to the URL."""
    value = st.session_state[key]
    put(**{name: int(value) if isinstance(value, bool) else value})


def choice(name: str, options: Sequence[str], default: str) -> str:
    """A value of the URL that must be one of ``options``."""
    value = get(name, default)
    return value if value in options else default


def widget(name: str, value: Any) -> dict[str, Any]:
    """Arguments for a widget that shows ``value`` and writes the URL parameter ``name``."""
    key = f"widget {name}"
    st.session_state[key] = value
    return {"key": key, "on_change": put_widget, "args": (name, key)}
