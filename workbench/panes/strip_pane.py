"""The strip of all steps; a click goes there."""

from __future__ import annotations

import streamlit as st

from workbench import urlstate
from workbench.figures.strip import step_strip
from workbench.loaded import Loaded
from workbench.panes.picking import draw
from workbench.selection import Selection
from workbench.theme import Palette


def draw_strip(loaded: Loaded, selection: Selection, palette: Palette) -> None:
    """Bars of accepted length, faults as ✖."""
    bars = loaded.bars(selection.rank)
    known = [
        bar.accept_length / max(bar.requests, 1) for bar in bars if bar.accept_length is not None
    ]
    mean = (
        f"mean accepted length {sum(known) / len(known):.2f} tokens a step"
        if known
        else "not recorded"
    )
    faulty = sum(bar.faults > 0 for bar in bars)
    st.caption(f"accepted length of each step · {mean} · {faulty} of {len(bars)} steps at fault")
    draw(step_strip(bars, palette, selection.step), "strip", "accepted length of each step", _go)


def _go(step: int) -> None:
    urlstate.put(step=step)
