"""The grid of an experiment and its figure. Run: pytest tests/workbench/test_lab_grid.py."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lab_sample import HOSTILE, SMALL, failed, story

from engine.isolate.cell import Cell, Factor
from engine.isolate.outcome import Outcome
from workbench.figures.lab_matrix import Face, lab_matrix, sign
from workbench.lab_grid import grid_of, spans
from workbench.lab_words import hover_lines
from workbench.outcome import CELL_MARKS, NOT_MEASURED
from workbench.theme import DARK, LIGHT, Palette

FIRST = next(iter(SMALL))


def data(figure) -> dict:
    return {trace.name: trace for trace in figure.data}


def test_what_trees_are_goes_down_and_how_they_are_run_across() -> None:
    grid = grid_of(SMALL)
    assert grid.down == (Factor.BUDGET, Factor.TOPK)
    assert grid.across == (Factor.GRAPHS, Factor.BATCH)
    assert grid.rows == ((7, 1), (7, 4), (16, 1), (16, 4))
    assert grid.columns == ((False, 1), (False, 2), (True, 1), (True, 2))
    assert grid.same == ("prompt 0", "temperature 0", "seed 0")
    assert sorted(grid.flat) == sorted(SMALL)


def test_neighbours_share_labels() -> None:
    grid = grid_of(SMALL)
    outer, inner = spans(grid.rows, grid.down)
    assert [(s.start, s.stop, s.text, s.short) for s in outer] == [
        (0, 2, "budget 7", "7"),
        (2, 4, "budget 16", "16"),
    ]
    assert [s.text for s in inner] == ["top-k 1", "top-k 4"] * 2


def test_no_cap_is_the_last_and_many_columns_turn_down() -> None:
    grid = grid_of(replace(SMALL, topks=(None, 2), seeds=tuple(range(9))))
    assert grid.rows[0] == (7, 2, 0)
    assert grid.rows[-1] == (16, None, 8)
    assert grid.across == (Factor.GRAPHS, Factor.BATCH)


def test_one_cell_is_a_grid_too() -> None:
    grid = grid_of([FIRST])
    assert (grid.down, grid.across) == ((Factor.BUDGET,), (Factor.GRAPHS,))
    assert grid.at(0) == FIRST
    assert grid.at(1) is None


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_an_outcome_has_its_own_colour_shape_and_word(palette: Palette) -> None:
    cells = list(SMALL)
    faces = {c: Face(o, 2.5) for c, o in zip(cells, [*Outcome, None], strict=False)}
    figure = lab_matrix(grid_of(SMALL), faces, palette)
    for outcome, look in CELL_MARKS.items():
        trace = data(figure)[str(outcome)]
        assert trace.text == (f"{look.glyph} {look.word}<br>2.50",)
        assert trace.textfont.color == look.colour(dark=palette.dark)
    glyphs = [look.glyph for look in (*CELL_MARKS.values(), NOT_MEASURED)]
    assert len(set(glyphs)) == len(glyphs)
    reds = [o for o, look in CELL_MARKS.items() if look.colour(dark=palette.dark) == palette.fault]
    assert reds == [Outcome.WRONG]


def test_a_place_hands_back_its_cell_and_says_its_facts_as_text() -> None:
    grid = grid_of(SMALL)
    measured = replace(story(FIRST), sentence=HOSTILE)
    lines = tuple(hover_lines(FIRST, Outcome.CLEAN, measured))
    places = data(lab_matrix(grid, {FIRST: Face(Outcome.CLEAN, hover=lines)}, LIGHT))["places"]
    assert grid.at(places.customdata[0]) == FIRST
    assert "2.50 tokens a step" in places.hovertext[0]
    assert "20.0 tokens/s (plain decoding 10.0)" in places.hovertext[0]
    assert "<img" not in places.hovertext[0]


def test_the_selected_cell_has_a_ring() -> None:
    shapes = lab_matrix(grid_of(SMALL), {}, LIGHT, list(SMALL)[-1]).layout.shapes
    assert [(s.x0, s.y0) for s in shapes if s.type == "rect"] == [(2.51, 2.52)]


def test_words_give_way_to_glyphs() -> None:
    face = Face(Outcome.WRONG, 1.4)
    assert sign(face, columns=4, low=False) == "✖ wrong<br>1.40"
    assert sign(face, columns=4, low=True) == "✖ wrong  1.40"
    assert sign(face, columns=30, low=False) == "✖"
    assert sign(Face(None, measuring=True), columns=4, low=False) == "… measuring"


def test_hover_of_what_is_not_there() -> None:
    assert hover_lines(FIRST, None, None)[1] == "· not measured: not measured yet"
    assert "RuntimeError: no room" in hover_lines(FIRST, Outcome.FAILED, failed(FIRST))


def test_narrow_columns_have_values_alone_and_the_factor_beside() -> None:
    grid = grid_of(replace(SMALL, batches=(1, 2, 3), used_prompts=(0, 1, 2)))
    texts = [a.text for a in lab_matrix(grid, {}, LIGHT).layout.annotations]
    assert "prompt" in texts
    assert "prompt 0" not in texts
    assert "batch 3" in texts


def test_cells_of_a_whole_matrix_stay_within_a_page() -> None:
    cells = [Cell(n + 1, 1, False, 1, 0, 0.0, 0) for n in range(60)]
    assert lab_matrix(grid_of(cells), {}, LIGHT).layout.height < 1000
