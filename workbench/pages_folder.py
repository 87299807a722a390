"""Where the page files lie, for links from one page to another."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from workbench import urlstate

PAGES = Path(__file__).resolve().parents[1] / "pages"
INSPECTOR, MASK_DIFF, FINDINGS = "step_inspector.py", "mask_diff.py", "findings.py"
RUN, SNAPSHOTS = "run.py", "snapshots.py"


def open_page(name: str) -> None:
    """Leave for another page with the selection."""
    st.switch_page(PAGES / name, query_params=_kept())


def link(name: str, label: str) -> None:
    """A link to another page that keeps the selection."""
    st.page_link(PAGES / name, label=label, query_params=_kept())


def _kept() -> dict[str, str]:
    return {key: value for key in urlstate.KNOWN if (value := urlstate.get(key)) is not None}
