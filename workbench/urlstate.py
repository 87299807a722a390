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
VIEWS = ("mask", "prefix", "weights", "left", "right", "rows", "columns", "run", *RUN, *FILTER)
KNOWN = (*SELECTION, *VIEWS)
COPY = "url copy"
MAX_LENGTH = 1000  # characters of one value


def sync() -> None:
    """Start of every run: an empty query string is filled from the session's copy."""
    given = {name: st.query_params[name][:MAX_LENGTH] for name in KNOWN if name in st.query_params}
    if not any(name in given for name in SELECTION):
        given = {**st.session_state.get(COPY, {}), **given}
        st.query_params.from_dict({**st.query_params.to_dict(), **given})
    st.session_state[COPY] = given


def get(name: str, default: str | None = None) -> str | None:
    """A value of the URL."""
    return st.query_params.get(name, default)


def put(**values: Any) -> None:
    """Set values; None removes one."""
    for name, value in values.items():
        assert name in KNOWN, name
        if value is None:
            st.query_params.pop(name, None)
        else:
            st.query_params[name] = str(value)
    st.session_state[COPY] = {n: st.query_params[n] for n in KNOWN if n in st.query_params}


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
