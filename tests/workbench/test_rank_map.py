"""A run as a map of ranks: cells, rings, colours, what is said. Run: pytest tests/workbench/test_rank_map.py."""

from __future__ import annotations

import json

import pytest

from workbench.figures.rank_map import (
    NAMES,
    Level,
    asked_text,
    colours,
    level_grid,
    level_of,
    not_asked_text,
    rank_map,
)
from workbench.ordinals import nth
from workbench.theme import DARK, LIGHT
from workbench.walks import Walk

WALKS = [
    Walk(4, "r0", 4, (0, 1, 9), ("a", "b", "c"), 3),
    Walk(5, "r0", 4, (None,), ("<b>",), 1),
    Walk(7, "r0", 4, (0, 2, 7, 3), ("a", "b", "c", "d"), None),
]


def trace(figure, name: str):
    return next(data for data in figure.data if data.name == name)


@pytest.mark.parametrize(
    ("rank", "name"),
    [
        (0, "best"),
        (1, "2nd"),
        (2, "3rd-4th"),
        (3, "3rd-4th"),
        (4, "5th-8th"),
        (7, "5th-8th"),
        (8, "9th or lower"),
        (63, "9th or lower"),
        (None, "no candidate"),
    ],
)
def test_each_rank_has_its_level(rank: int | None, name: str) -> None:
    assert NAMES[level_of(rank)] == name


def test_cells_are_levels_by_depth_and_step() -> None:
    assert level_grid(WALKS) == [
        [0, 5, None, 0],
        [1, 6, None, 2],
        [4, 6, None, 3],
        [6, 6, None, 2],
    ]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_the_map_shows_cells_rings_and_the_selected_step(palette) -> None:
    figure = rank_map(WALKS, palette, 5)
    cells, stops = trace(figure, "ranks"), trace(figure, "stops")
    assert [list(row) for row in cells.z] == level_grid(WALKS)
    assert (cells.x0, cells.y0) == (4, 1)
    assert list(zip(stops.x, stops.y, strict=True)) == [(4, 3), (5, 1)]
    (box,) = figure.layout.shapes
    assert (box.x0, box.x1, box.y0, box.y1) == (4.5, 5.5, 0.5, 4.5)
    assert figure.layout.yaxis.range == (4.5, 0.5)
    assert figure.layout.paper_bgcolor == palette.background
    json.loads(figure.to_json())


def test_nothing_is_marked_where_no_step_is_selected() -> None:
    figure = rank_map(WALKS, LIGHT)
    assert not figure.layout.shapes


def test_a_click_anywhere_over_a_step_hands_back_the_step() -> None:
    places = trace(rank_map(WALKS, LIGHT), "places")
    boxes = list(zip(places.customdata, places.base, places.y, strict=True))
    assert boxes == [
        (4, 0.5, 1),
        (4, 1.5, 1),
        (4, 2.5, 1),
        (4, 3.5, 1),
        (5, 0.5, 1),
        (5, 1.5, 3),
        (7, 0.5, 1),
        (7, 1.5, 1),
        (7, 2.5, 1),
        (7, 3.5, 1),
    ]
    assert list(places.x) == list(places.customdata)
    assert places.hovertext[4].startswith("step 5, depth 1: the target chose &quot;&lt;b&gt;&quot;")


def test_hover_says_what_a_cell_is() -> None:
    first, second, third = WALKS
    assert (
        asked_text(first, 2)
        == 'step 4, depth 2: the target chose "b", the drafter\'s 2nd best (rank 1)'
    )
    assert asked_text(first, 3) == (
        'step 4, depth 3: the target chose "c", the drafter\'s 10th best (rank 9); the walk stopped here'
    )
    assert asked_text(second, 1) == (
        'step 5, depth 1: the target chose "<b>", not among the drafter\'s candidates; the walk stopped here'
    )
    assert not_asked_text(first) == "step 4, depth 4: not asked, the walk had ended"
    assert not_asked_text(second) == "step 5, depths 2 … 4: not asked, the walk had ended"
    ended = Walk(8, "r0", 4, (0, 0), ("a", "b"), None)
    assert not_asked_text(ended) == "step 8, depths 3 … 4: not asked, the text had ended"
    assert asked_text(third, 1).endswith("the drafter's best (rank 0)")


@pytest.mark.parametrize(
    ("rank", "text"),
    [(2, "3rd best (rank 2)"), (10, "11th best (rank 10)"), (20, "21st best (rank 20)")],
)
def test_ranks_are_counted_as_people_do(rank: int, text: str) -> None:
    assert nth(rank) == text


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_every_level_has_a_colour_of_its_own_and_none_is_red(palette) -> None:
    all_colours = colours(palette)
    assert len(set(all_colours)) == len(Level) == 7
    assert palette.fault not in all_colours
    assert all_colours[Level.BEST] == {"#FFFFFF": "#0072B2"}.get(palette.background, "#56B4E9")
    assert all_colours[Level.LOWER] == palette.folded


def test_the_legend_names_every_level_and_the_ring() -> None:
    figure = rank_map(WALKS, LIGHT)
    named = [data.name for data in figure.data if data.showlegend is not False]
    assert named == [*NAMES.values(), "walk stopped"]


def test_a_thousand_steps_of_a_long_block_stay_few_marks() -> None:
    walks = [Walk(s, "r0", 63, (0, None), ("a", "b"), 2) for s in range(1000)]
    figure = rank_map(walks, LIGHT)
    assert len(trace(figure, "places").x) == 3000
    assert figure.layout.height < 450
    assert trace(figure, "stops").marker.size == 3
