"""Whether the browser shows this page: a hidden tab needs nothing."""

from __future__ import annotations

import streamlit as st

BELIEVED = "believed hidden"
# What is told while the page runs may be lost: as long as the page believes otherwise, it is told again.
SCRIPT = """
export default function ({ data, setStateValue }) {
  const tell = () => {
    if (document.hidden !== data.hidden) setStateValue("hidden", document.hidden);
  };
  tell();
  const timer = setInterval(tell, 1000);
  document.addEventListener("visibilitychange", tell);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", tell);
  };
}
"""


def is_hidden() -> bool:
    """Asks the browser; the page runs again when that changes."""
    mount = st.components.v2.component("ddtree_visibility", js=SCRIPT)
    believed = {"hidden": bool(st.session_state.get(BELIEVED))}
    found = mount(
        key="visibility", data=believed, default={"hidden": False}, on_hidden_change=_changed
    )
    st.session_state[BELIEVED] = bool(found.hidden)
    return bool(found.hidden)


def _changed() -> None:
    """The run that follows asks again."""
