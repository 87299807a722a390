"""A part of a page that draws itself again and again, as long as somebody looks at it.

The browser asks for each drawing, some time after the last one is shown: drawings never pile up, none is asked for
while the tab is hidden, and a reader's own click goes first. A timer of Streamlit (``run_every``) asks whatever
happens, and a request of the old page that reaches the server behind a click on a link undoes that click.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

from workbench.guard import guarded

# The function runs again with new data, on the same element, and what it returns is called only at the end.
SCRIPT = """
const GRACE = 1000;  // milliseconds for what a reader just did
const LOST = 10000;  // a request without an answer is sent again

export default function ({ data, parentElement, setTriggerValue }) {
  parentElement.ddtreeStop?.();
  const drawn = performance.now();
  let busy = -GRACE, asked = -LOST;
  const acted = () => { busy = performance.now(); };
  const ask = () => {
    const now = performance.now();
    const state = document.querySelector("[data-testid=stApp]")?.dataset.testScriptState;
    const free = !document.hidden && (state === undefined || state === "notRunning");
    if (!free || now - drawn < data.every || now - busy < GRACE || now - asked < LOST) return;
    asked = now;
    setTriggerValue("again", data.drawn);
  };
  const timer = setInterval(ask, 100);
  document.addEventListener("visibilitychange", ask);
  document.addEventListener("pointerdown", acted, true);
  document.addEventListener("keydown", acted, true);
  parentElement.ddtreeStop = () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", ask);
    document.removeEventListener("pointerdown", acted, true);
    document.removeEventListener("keydown", acted, true);
  };
  return () => parentElement.ddtreeStop();
}
"""


def draw_again_every(seconds: float, key: str, draw: Callable[[], None]) -> None:
    """Draw in a fragment of its own, and again ``seconds`` after it is shown. ``key`` names it on its page."""

    @st.fragment
    def fragment() -> None:
        with guarded():
            draw()
        _ask(seconds, key)

    fragment()


def _ask(seconds: float, key: str) -> None:
    mount = st.components.v2.component("ddtree_again", js=SCRIPT)
    data = {"every": round(seconds * 1000), "drawn": str(time.monotonic_ns())}
    mount(key=f"again {key}", data=data, on_again_change=_asked)


def _asked() -> None:
    """The run that follows draws."""
