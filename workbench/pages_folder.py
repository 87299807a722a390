"""Where the page files lie, for links from one page to another."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from workbench import urlstate

PAGES = Path(__file__).resolve().parents[1] / "pages"
INSPECTOR, MASK_DIFF, FINDINGS = "step_inspector.py", "mask_diff.py", "findings.py"
RUN, ISOLATE, LIVE, SNAPSHOTS = "run.py", "isolate.py", "live.py", "snapshots.py"
ASKED = "asked page"


def open_page(name: str) -> None:
    """Leave for another page with the selection."""
    st.switch_page(PAGES / name, query_params=_kept())


def link(name: str, label: str, **place: str | None) -> None:
    """A link to another page that keeps the selection, but for what ``place`` says; None removes a value."""
    given = {**_kept(), **place}
    wanted = {key: value for key, value in given.items() if value is not None}
    st.page_link(PAGES / name, label=label, query_params=wanted)


def ask_for(name: str) -> None:
    """Open a page at the start of the next run, for callbacks, which cannot leave a page."""
    st.session_state[ASKED] = name


def open_asked() -> None:
    """Leave for the page that a callback asked for."""
    name = st.session_state.pop(ASKED, None)
    if name is not None:
        open_page(name)


def _kept() -> dict[str, str]:
    return {key: value for key in urlstate.KNOWN if (value := urlstate.get(key)) is not None}
