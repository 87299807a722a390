"""The app: ``streamlit run workbench/app.py``. Navigation, the shared header, then the page."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

HERE = Path(__file__).resolve().parent
HEAVY = "workbench.header"  # the checks and figures come with it


def main() -> None:
    """One run of the script. The first one of the process says what takes its time."""
    st.set_page_config(page_title="DDTree workbench", page_icon="◆", layout="wide")
    st.html(HERE / "static" / "app.css")
    waiting = st.empty()
    if HEAVY not in sys.modules:
        waiting.caption("Starting: loading the checks and the figures, once for all pages …")
    from workbench import urlstate
    from workbench.current import current
    from workbench.guard import guarded
    from workbench.header import draw_header
    from workbench.loading import one_run
    from workbench.pages_folder import (
        FINDINGS,
        INSPECTOR,
        ISOLATE,
        LIVE,
        MASK_DIFF,
        PAGES,
        RUN,
        SNAPSHOTS,
        open_asked,
    )
    from workbench.traces import traces_folder

    traces_folder()  # imports too
    waiting.empty()
    urlstate.sync()
    run = st.Page(PAGES / RUN, title="Run", url_path="run")
    isolate = st.Page(PAGES / ISOLATE, title="Isolate", url_path="isolate")
    live = st.Page(PAGES / LIVE, title="Live", url_path="live")
    page = st.navigation(
        [
            st.Page(PAGES / INSPECTOR, title="Step inspector", default=True),
            st.Page(PAGES / MASK_DIFF, title="Mask diff", url_path="mask_diff"),
            st.Page(PAGES / FINDINGS, title="Findings", url_path="findings"),
            run,
            isolate,
            live,
            st.Page(PAGES / SNAPSHOTS, title="Snapshots", url_path="snapshots"),
        ],
        position="top",
    )
    open_asked()
    with one_run(waiting), guarded():
        draw_header(current(), calm=page in (run, isolate, live))
        page.run()


main()
