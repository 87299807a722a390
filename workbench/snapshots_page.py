"""Snapshots: what to attach to a bug report, and what somebody else attached."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import streamlit as st

from engine.trace.errors import TraceFormatError
from engine.trace.snapshot import Snapshot, SnapshotSummary, export_snapshot, import_snapshot
from workbench import traces, urlstate
from workbench.causes import group_causes
from workbench.current import Current, current, reason
from workbench.header import draw_line
from workbench.loaded import Loaded
from workbench.loading import load
from workbench.pages_folder import INSPECTOR, RUN, link, open_page
from workbench.report import build_report
from workbench.snapshot_words import listed
from workbench.tokens import for_markdown, message
from workbench.traces import imports_folder, key_of, safe_name

THIS, FAULTY, RANGE = "this step", "first faulty step of each cause", "a range of steps"
LARGEST = 256 << 20  # bytes of an upload


def draw_snapshots() -> None:
    """The whole page below the header."""
    now = current()
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Export**")
        if now.loaded is None or now.selection is None:
            st.info("There is no step to export: pick a recording above, or make one.")
            link(RUN, "Make a run")
        else:
            _draw_export(now, now.loaded)
    with right:
        st.markdown("**Import**")
        _draw_import()


def _draw_export(now: Current, loaded: Loaded) -> None:
    assert now.selection is not None
    assert now.entry is not None
    choice = st.radio("steps", (THIS, FAULTY, RANGE), key="snapshot steps", horizontal=True)
    positions = _positions(now, loaded, choice)
    texts = st.toggle(
        "include text",
        key="snapshot text",
        help="prompts, token texts, command and notes; token ids always go in",
    )
    if not positions:
        st.info("No step is at fault, so there is none of this kind; choose another set of steps.")
        return
    try:
        data, summary = _build(now, loaded, tuple(positions), texts)
    except ValueError as error:
        st.warning(message(f"This snapshot cannot be made: {error}"))
        return
    _draw_summary(loaded, summary)
    st.download_button(
        f"Save snapshot ({size_text(summary.size)})",
        data=data,
        file_name=f"{safe_name(now.entry.key)}.ddtree.zip",
        mime="application/zip",
        type="primary",
        key="save snapshot",
    )


def _positions(now: Current, loaded: Loaded, choice: str) -> list[int]:
    assert now.selection is not None
    if choice == THIS:
        return [loaded.position(now.selection.step, now.selection.rank)]
    if choice == FAULTY:
        firsts = [group.findings[0] for group in group_causes(loaded.report.causes)]
        places = {(f.step, f.rank) for f in firsts if f.step is not None and f.rank is not None}
        return sorted(loaded.position(step, rank) for step, rank in places)
    steps = loaded.steps_of(now.selection.rank)
    if len(steps) == 1:
        return [loaded.position(steps[0], now.selection.rank)]
    here = now.selection.step
    first, last = st.slider("range", steps[0], steps[-1], (steps[0], here), key="snapshot range")
    return [loaded.position(s, now.selection.rank) for s in steps if first <= s <= last]


def _build(
    now: Current, loaded: Loaded, positions: tuple[int, ...], texts: bool
) -> tuple[bytes, SnapshotSummary]:
    assert now.selection is not None
    assert now.entry is not None
    chosen = {name: urlstate.get(name) for name in urlstate.SELECTION if name != "trace"}
    selection = urlencode({name: value for name, value in chosen.items() if value is not None})
    return _packed(loaded, loaded.trace.digest, positions, texts, selection)


@st.cache_data(max_entries=8, show_spinner="Putting the snapshot together …")
def _packed(
    _loaded: Loaded, digest: str, positions: tuple[int, ...], texts: bool, selection: str
) -> tuple[bytes, SnapshotSummary]:
    """The zip and what is in it; ``digest`` stands for the recording in the cache."""

    def report(trace, steps, findings):
        return build_report(trace, steps, findings, include_text=texts)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.zip")
        summary = export_snapshot(
            path,
            _loaded.trace,
            positions,
            (*_loaded.report.findings, *_loaded.report.skipped),
            include_text=texts,
            report_html=report,
            selection=selection,
        )
        return path.read_bytes(), summary


def _draw_summary(loaded: Loaded, summary: SnapshotSummary) -> None:
    names = ", ".join(str(loaded.keys[p][0]) for p in summary.chosen[:12])
    more = f" and {len(summary.chosen) - 12} more" if len(summary.chosen) > 12 else ""
    context = f", with {len(summary.context)} more as context" if summary.context else ""
    st.markdown(f"**What goes in:** step {names}{more}{context}; {summary.findings} findings")
    st.markdown("\n".join(f"- {for_markdown(text)}" for text in summary.included))
    if summary.left_out:
        st.markdown(f"**What is left out:** {for_markdown(listed(summary.left_out))}")
    else:
        st.warning("Prompts, texts and the command go in: look at them before you share the file.")
    with st.expander(f"{len(summary.members)} files, {size_text(summary.size)} packed"):
        st.dataframe(
            {
                "file": [name for name, _ in summary.members],
                "size": [size_text(size) for _, size in summary.members],
            },
            hide_index=True,
        )


def size_text(size: int) -> str:
    """``812 bytes``, ``14.2 kB``, ``3.1 MB``."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def _draw_import() -> None:
    upload = st.file_uploader(
        "drop a snapshot here",
        key="snapshot upload",
        help="a .zip that this page or `ddtree snapshot` wrote",
    )
    if upload is not None:
        _take(upload.name, upload.getvalue())
    kept = [e for e in traces.entries() if e.origin is traces.Origin.IMPORTED]
    if not kept and upload is None:
        st.caption("No snapshot was imported yet; those that you drop here stay in the list above.")
    for entry in kept:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(for_markdown(entry.key))
            if st.button("Open", key=f"open {entry.key}"):
                _open(entry.key, "")


def _take(name: str, data: bytes) -> None:
    """Check an upload, keep it, and say what it is; the file is kept only if it can be read."""
    try:
        key, snapshot = keep(name, data)
    except (TraceFormatError, OSError, ValueError) as error:
        st.error(message(f"{name[:100]} is not a snapshot that can be opened: {reason(error)}"))
        st.caption(
            "Ask for the file as this page saved it: mail programs and chats sometimes repack zips."
        )
        return
    selection = snapshot.manifest.get("selection")
    roles = snapshot.manifest.get("steps")
    count = len(roles) if isinstance(roles, list) else len(snapshot.trace)
    st.success(
        for_markdown(
            f"{name[:100]}: {count} steps, {snapshot.num_findings} findings recorded in it"
        )
    )
    draw_line(load(traces.find(key, traces.entries()).path).headline)
    if st.button("Open in the inspector", type="primary", key="open import"):
        _open(key, selection if isinstance(selection, str) else "")


def keep(name: str, data: bytes) -> tuple[str, Snapshot]:
    """Store an upload under its name and content; returns its key. Raises as ``import_snapshot``
    does.
    """
    if len(data) > LARGEST:
        raise ValueError(f"expected at most {size_text(LARGEST)}, found {size_text(len(data))}")
    digest = hashlib.sha256(data).hexdigest()[:8]
    path = imports_folder() / f"{safe_name(key_of(Path(name)))}-{digest}.ddtree.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unchecked = Path(folder, "upload.zip")
        unchecked.write_bytes(data)
        import_snapshot(unchecked)
        unchecked.replace(path)
    return key_of(path), import_snapshot(path)


def _open(key: str, selection: str) -> None:
    """Show a snapshot, at the place that its sender looked at."""
    given = parse_qs(selection[:1000])
    place = {
        name: given[name][0] for name in urlstate.SELECTION if name in given and name != "trace"
    }
    blank = dict.fromkeys((*urlstate.SELECTION, *urlstate.VIEWS))
    urlstate.put(**{**blank, **place, "trace": key})
    open_page(INSPECTOR)
