"""An experiment as one file: what goes in, what is left out, and whose recordings."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from engine.isolate.cell import Cell
from engine.isolate.export import MOST_TRACES, SUFFIX, pack_lab, size_of, without_secrets
from engine.isolate.outcome import BROKEN
from engine.trace.limits import MAX_SNAPSHOT_BYTES
from workbench.isolate_words import lines_of
from workbench.lab_words import subject_lines
from workbench.labs import Judged, Lab
from workbench.snapshots_page import size_text
from workbench.traces import safe_name
from workbench.verdict import plural

NONE, PROOF, BAD, ALL = "none", "of the proof", "of wrong or failed cells", "all"


def draw_export(lab: Lab, judged: Judged) -> None:
    """The choice, what is in the file, the button."""
    chosen = st.radio("recordings", list(CHOICES), index=1, key="lab export recordings")
    cells = CHOICES[chosen](judged)
    count, size = size_of(lab.store, cells)
    st.markdown(
        f"**What goes in:** the verdict in words, the settings, {plural(len(judged.results), 'result')} with prompts "
        f"and texts, {plural(count, 'recording')}"
    )
    st.markdown("**What is left out:** values of environment variables, other recordings")
    st.caption("Prompts, texts and command lines go in: look at them before you share the file.")
    if count > MOST_TRACES or size > MAX_SNAPSHOT_BYTES:
        st.warning(
            f"Too much for one file: {plural(count, 'recording')}, {size_text(size)}; at most {MOST_TRACES} and "
            f"{size_text(MAX_SNAPSHOT_BYTES)}. Choose fewer recordings."
        )
        return
    st.download_button(
        f"Save experiment (at most {size_text(size)})",
        data=lambda: pack_lab(lab.store, words_of(lab, judged), cells),
        file_name=f"{safe_name(lab.store.folder.name)}{SUFFIX}",
        mime="application/zip",
        type="primary",
        on_click="ignore",
        key="lab save",
    )


def words_of(lab: Lab, judged: Judged) -> str:
    """What the file says to people: the verdict on top, then what it was tried on."""
    experiment = lab.store.experiment
    lines = lines_of(experiment, judged.results, judged.verdict)
    return "\n".join(
        [
            *lines,
            "",
            "tried on:",
            *(f"  {line}" for line in subject_lines(without_secrets(experiment))),
        ]
    )


def _proof(judged: Judged) -> list[Cell]:
    """The first pair of each factor."""
    found: dict[str, list[Cell]] = {}
    for pair in judged.verdict.proof:
        found.setdefault(pair.factor, [pair.broken, pair.other])
    return list(dict.fromkeys(cell for cells in found.values() for cell in cells))


CHOICES: dict[str, Callable[[Judged], list[Cell]]] = {
    NONE: lambda judged: [],
    PROOF: _proof,
    BAD: lambda judged: [c for c, outcome in judged.outcomes.items() if outcome in BROKEN],
    ALL: lambda judged: list(judged.results),
}
