"""Why walks stop, over a tree drawn by hand. Run: pytest tests/workbench/test_walk_ends.py."""

from __future__ import annotations

import numpy as np
import pytest

from engine.decoding.acceptance_curve import DraftedPlace
from engine.decoding.best_first import Candidates
from engine.step import Config, TreeRecord
from workbench.figures.rank_map import asked_text, legible_on, rank_map
from workbench.theme import DARK, LIGHT
from workbench.walk_ends import End, end_of, ends_text
from workbench.walks import Walk

# 9 ─┬─ 10 ─┬─ 20
#    │      └─ 21
#    └─ 11 ─── 20
TREE = TreeRecord(
    np.array([-1, 0, 0, 1, 1, 2]),
    np.array([9, 10, 11, 20, 21, 20]),
)
CANDIDATES = Candidates(
    np.log([[0.5, 0.3, 0.1, 0.1]] * 3),
    np.array([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]),
)


def end(following: tuple[int, ...], accepted: int, topk: int | None = 3) -> End | None:
    place = DraftedPlace(0, "r0", 9, CANDIDATES, following, accepted)
    return end_of(place, TREE, Config(budget=5, topk=topk))


@pytest.mark.parametrize(
    ("following", "accepted", "expected"),
    [
        ((99,), 0, End.NO_CANDIDATE),
        ((13,), 0, End.BEYOND_TOPK),
        ((12,), 0, End.NO_NODE),
        ((10, 22), 1, End.NO_NODE),
        ((11, 21), 1, End.NO_NODE),  # 21 hangs below 10 alone
        ((11, 23), 1, End.BEYOND_TOPK),
        ((10, 21, 30), 2, End.NO_NODE),  # no node is that deep
        ((10, 21), 1, End.DRAFTED),
        ((12, 20), 1, End.ELSEWHERE),
        ((10, 21), 2, None),  # the text ended
        ((10, 20, 30, 5), 3, None),  # the whole block
    ],
)
def test_why_a_walk_stopped(
    following: tuple[int, ...], accepted: int, expected: End | None
) -> None:
    assert end(following, accepted) is expected


def test_without_a_cap_no_rank_is_beyond_it() -> None:
    assert end((13,), 0, topk=None) is End.NO_NODE


def test_a_tree_with_a_cycle_is_walked_to_an_end() -> None:
    record = TreeRecord(np.array([-1, 2, 1, 0]), np.array([9, 10, 11, 12]))
    place = DraftedPlace(0, "r0", 9, CANDIDATES, (12, 10, 11), 2)
    assert end_of(place, record, Config()) is End.ELSEWHERE


def test_reasons_in_words_the_most_frequent_first() -> None:
    ends = [End.BEYOND_TOPK, End.NO_NODE, End.NO_NODE, None, End.NO_CANDIDATE]
    assert ends_text(ends, 4, 16) == (
        "2 at a token not drafted, the 16 nodes went to others, 1 at a token that was no candidate, "
        "1 at a token beyond the top-k of 4"
    )
    assert ends_text(ends[:2], None, None) == (
        "1 at a token beyond the top-k, 1 at a token not drafted, the nodes went to others"
    )
    assert ends_text([None], 4, 16) == ""


WALKS = [
    Walk(4, "r0", 3, (0, 1, 9), ("a", "b", "c"), 3, 9, End.BEYOND_TOPK, 4, 16),
    Walk(5, "r0", 3, (None,), ("d",), 1, 9, End.NO_CANDIDATE, 4, 16),
    Walk(6, "r0", 3, (0, 0), ("e", "f"), 2, 9, End.NO_NODE, 4, 16),
]


def test_a_stop_says_why_when_it_is_pointed_at() -> None:
    assert asked_text(WALKS[0], 3) == (
        'step 4, depth 3: the target chose "c", the drafter\'s 10th best (rank 9); the walk stopped here, '
        "at a token beyond the top-k of 4"
    )
    assert "the walk stopped" not in asked_text(WALKS[0], 2)


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_ranks_are_numbers_but_where_the_best_was_accepted(palette) -> None:
    figure = rank_map(WALKS, palette)
    numbers = next(part for part in figure.data if part.name == "numbers")
    assert list(zip(numbers.x, numbers.y, numbers.text, strict=True)) == [
        (4, 2, "2"),
        (4, 3, "10"),
        (5, 1, "–"),
        (6, 2, "1"),  # best, and yet not in the tree
    ]
    assert numbers.textfont.color[1] == palette.ink  # in the ring
    assert not numbers.showlegend


def test_many_steps_are_colours_alone() -> None:
    walks = [Walk(s, "r0", 3, (1,), ("a",), 1) for s in range(49)]
    assert "numbers" not in [part.name for part in rank_map(walks, LIGHT).data]
    assert "numbers" in [part.name for part in rank_map(walks[:48], LIGHT).data]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_numbers_stand_out(palette) -> None:
    assert legible_on(palette.background, palette) == palette.ink
    assert legible_on(palette.ink, palette) == palette.background
