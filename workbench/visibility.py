"""Whether the browser shows this page: a hidden tab needs nothing."""

from __future__ import annotations

import streamlit as st

SCRIPT = """
export default function ({ setStateValue }) {
  const tell = () => setStateValue("hidden", document.hidden);
  document.addEventListener("visibilitychange", tell);
  return () => document.removeEventListener("visibilitychange", tell);
}
"""


def is_hidden() -> bool:
    """Asks the browser; the page runs again when that changes."""
    mount = st.components.v2.component("ddtree_visibility", js=SCRIPT)
    found = mount(key="visibility", default={"hidden": False}, on_hidden_change=_changed)
    return bool(found.hidden)


def _changed() -> None:
    """The run that follows asks again."""
