"""Which experiment is shown: earlier ones, a new one, or one that somebody sent."""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path

import streamlit as st

from engine.isolate.export import SUFFIX, unpack_lab
from engine.trace.limits import MAX_SNAPSHOT_BYTES
from workbench import lab_folders, labs, urlstate
from workbench.lab_control import PROBLEM, show
from workbench.lab_folders import BUNDLED, IMPORTED, labs_folder
from workbench.tokens import legible, message
from workbench.traces import safe_name

PICKER = "lab picker"
UPLOADED = "lab uploaded"  # in the session: digest of the file that was opened


def draw_bar(key: str | None) -> None:
    """The picker, and the ways to other experiments."""
    known = {entry.key: entry for entry in lab_folders.entries()}
    st.session_state[PICKER] = key
    with st.container(horizontal=True, vertical_alignment="bottom", key="lab-bar"):
        st.selectbox(
            "experiment",
            [*known, *([key] if key and key not in known else [])],
            format_func=lambda name: _label(name, known),
            index=None,
            placeholder="earlier experiments" if known else "no experiment was made yet",
            accept_new_options=True,
            key=PICKER,
            on_change=lambda: show(st.session_state[PICKER]),
            width=420,
            help="pick one, or type the path of its folder, as `ddtree isolate` makes it",
        )
        if key is not None:
            st.button("New experiment", key="lab new", on_click=show, args=(None,))
        with st.popover("Open a file"):
            _draw_upload()
        going = labs.store().running()
        if going is not None and going.key != key:
            st.button(
                "Show the one in progress", key="lab show running", on_click=show, args=(going.key,)
            )
    problem = st.session_state.pop(PROBLEM, None)
    if problem:
        st.warning(message(problem))


def _label(name: str, known: dict[str, lab_folders.LabEntry]) -> str:
    entry = known.get(name)
    if entry is None:
        return legible(name)
    if name.startswith(f"{BUNDLED}/"):
        return legible(name)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.changed))
    return f"{legible(name)} ({when})"


def _draw_upload() -> None:
    upload = st.file_uploader(
        "drop an experiment here", key="lab upload", help="a .zip that this page saved"
    )
    if upload is None:
        return
    data = upload.getvalue()
    try:
        key = keep(upload.name, data)
    except (ValueError, OSError) as error:
        st.error(message(f"{upload.name[:100]} is not an experiment that can be opened: {error}"))
        st.caption("Ask for the file as this page saved it.")
        return
    if st.session_state.get(UPLOADED) != key:
        st.session_state[UPLOADED] = key
        show(key)
        st.rerun()
    if urlstate.get("lab") != key:
        st.button("Open it", key="lab open import", on_click=show, args=(key,))


def keep(name: str, data: bytes) -> str:
    """Check an upload and keep it under its name and content; returns its key. Raises as ``unpack_lab`` does."""
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise ValueError(f"expected at most {MAX_SNAPSHOT_BYTES} bytes, found {len(data)}")
    stem = safe_name(name.removesuffix(SUFFIX).removesuffix(".zip"))
    folder = labs_folder() / IMPORTED / f"{stem}-{hashlib.sha256(data).hexdigest()[:8]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            path = Path(place, "upload.zip")
            path.write_bytes(data)
            try:
                unpack_lab(path, folder)
            except ValueError as error:
                raise ValueError(str(error).replace(f"{path}: ", "")) from None
    return lab_folders.key_of(folder)
