"""The grid of an experiment's cells, with the counts of each outcome; a click picks a cell."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from engine.isolate.cell import Cell
from engine.isolate.outcome import Outcome
from workbench.figures.lab_matrix import WORDS, Face, lab_matrix
from workbench.lab_control import pick
from workbench.lab_grid import LabGrid, grid_of
from workbench.lab_words import hover_lines
from workbench.labs import Judged, Lab
from workbench.outcome import CELL_MARKS
from workbench.panes.picking import draw
from workbench.theme import palette
from workbench.tokens import for_markdown

TALLEST = 720  # pixels; a taller grid scrolls
ALT = "outcome of each cell by what is varied"


def draw_matrix(lab: Lab, judged: Judged, selected: Cell | None) -> None:
    """Counts, grid, and what all cells have in common."""
    grid = grid_of(lab.store.experiment.matrix)
    measuring = lab.now.cell if lab.now is not None else None
    faces = {cell: face_of(cell, judged, measuring) for cell in grid.flat}
    st.markdown(f"**Cells** · {counts_text(Counter(face.outcome for face in faces.values()))}")

    def go(number: int) -> None:
        if (cell := grid.at(number)) is not None:
            pick(cell)

    figure = lab_matrix(grid, faces, palette(st.context.theme.type), selected)
    with st.container(height=TALLEST if figure.layout.height > TALLEST else "content"):
        draw(figure, "lab matrix", ALT, go)
    st.caption(for_markdown(footnote(grid, judged)))


def face_of(cell: Cell, judged: Judged, measuring: Cell | None) -> Face:
    """How a cell stands in the grid."""
    measured, outcome = judged.results.get(cell), judged.outcomes.get(cell)
    number = None if measured is None else measured.accept_length
    lines = hover_lines(cell, outcome, measured)
    return Face(outcome, number, tuple(lines), cell == measuring and measured is None)


def counts_text(counts: Counter[Outcome | None]) -> str:
    """``✖ 8 wrong · ● 8 clean`` as Markdown, the worst first; what nobody has is left out."""
    parts = []
    for outcome, look in reversed(CELL_MARKS.items()):
        if counts[outcome]:
            glyph = f":red[{look.glyph}]" if outcome is Outcome.WRONG else look.glyph
            parts.append(f"{glyph} {counts[outcome]} {outcome}")
    if counts[None]:
        parts.append(f"{counts[None]} not measured")
    return " · ".join(parts)


def footnote(grid: LabGrid, judged: Judged) -> str:
    """What the numbers are, what does not vary, and what a click does."""
    known = any(measured.accept_length is not None for measured in judged.results.values())
    told = known and len(grid.columns) <= WORDS
    parts = ["numbers: tokens a step"] if told else []
    parts += [f"the same in all: {', '.join(grid.same)}"] if grid.same else []
    return " · ".join([*parts, "a click shows the cell"])
