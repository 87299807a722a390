"""The app: ``streamlit run workbench/app.py``. Navigation, the shared header, then the page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from workbench import urlstate
from workbench.current import current
from workbench.header import draw_header
from workbench.pages_folder import FINDINGS, INSPECTOR, MASK_DIFF, PAGES, RUN, SNAPSHOTS

HERE = Path(__file__).resolve().parent


def main() -> None:
    """One run of the script."""
    st.set_page_config(page_title="DDTree workbench", page_icon="◆", layout="wide")
    st.html(HERE / "static" / "app.css")
    urlstate.sync()
    page = st.navigation(
        [
            st.Page(PAGES / INSPECTOR, title="Step inspector", default=True),
            st.Page(PAGES / MASK_DIFF, title="Mask diff", url_path="mask_diff"),
            st.Page(PAGES / FINDINGS, title="Findings", url_path="findings"),
            st.Page(PAGES / RUN, title="Run", url_path="run"),
            st.Page(PAGES / SNAPSHOTS, title="Snapshots", url_path="snapshots"),
        ],
        position="top",
    )
    draw_header(current())
    page.run()


main()
