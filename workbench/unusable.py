"""One sentence for a value of the URL that a page could not use; the page works on with another."""

from __future__ import annotations

import streamlit as st

from workbench import urlstate
from workbench.tokens import for_markdown

SWITCH = "0 or 1"


def sentence(name: str, expected: str, found: str) -> str:
    """``rows: expected 3-7 within 0 … 16, found 'x'; it is ignored``."""
    return f"{name}: expected {expected}, found {found[:40]!r}; it is ignored"


def say(name: str, expected: str) -> None:
    """Say that the value of ``name`` is not used."""
    st.caption(for_markdown(sentence(name, expected, urlstate.get(name) or "")))


def switch(name: str) -> bool:
    """A value that is on or off; off where it makes no sense."""
    return urlstate.get(name) == "1"


def say_switch(name: str) -> None:
    """Say so where a value is neither on nor off."""
    if urlstate.get(name, "0") not in ("0", "1"):
        say(name, SWITCH)
