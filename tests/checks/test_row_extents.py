"""I1: rows a request, lengths of the per-row arrays, and the width of the story."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checks.finding import Finding
from engine.step import VerifyStep
from engine.tree import make_tree
from tests.checks.build import (
    ancestors,
    batch,
    clean,
    findings,
    lengths_to_indptr,
    only,
    short,
    spoil,
)
from tests.factories import ints

STORY_TREE = make_tree([-1, 0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 9, 10, 11], list(range(1, 18)))
STORY_PREFIX = 9


def story() -> VerifyStep:
    """Budget 16, so 17 rows; the drafter's block is 8."""
    step = clean([STORY_TREE], [STORY_PREFIX], [[0, 1, 4, 9]], budget=16)
    return spoil(step, ("config.block_size", 8))


def broken_story() -> VerifyStep:
    """The backend took its width from ``num_draft_tokens``, which is the block size."""
    return spoil(
        story(),
        ("config.num_draft_tokens", 8),
        ("inputs.qo_indptr", ints(0, 8)),
        ("inputs.max_extend_len", 8),
        ("inputs.mask_indptr", ints(0, 8 * (STORY_PREFIX + 8))),
    )


def story_cells() -> list[tuple[int, int]]:
    """Cells that the kernel gets wrong with width 8, by hand: it reads at stride 9 + 8 and never computes rows 8 …."""
    buffer = story().inputs.custom_mask
    wrong = []
    for row in range(17):
        line = ancestors(STORY_TREE, row)
        for column in range(STORY_PREFIX + 17):
            node = column - STORY_PREFIX
            wanted = node < 0 or node in line
            in_tree = 0 <= node < 8
            read = node < 0 or (in_tree and bool(buffer[row * 17 + column]))
            if wanted != (read and row < 8):
                wrong.append((row, column))
    return wrong


def test_story_is_clean_with_the_right_width() -> None:
    assert findings(story()) == []


def test_story() -> None:
    first, second = findings(broken_story())
    assert short(first) == (
        *("I1", "width-mismatch", "output", "fault", None),
        *(1, 1, 11, 28),  # row 1 reads node 2's column at byte 1 * 17 + 11, which is row 1's prefix
        *(17, 8, 144),
    )
    assert first.consequence_of is None
    assert list(first.where.cells or ()) == story_cells()[:64]
    assert first.count == len(story_cells())
    assert short(second) == (
        *("I4", "width-mismatch", "output", "fault", None),
        *(1, 1, 11, 28),
        *(17 * 26, 8 * 17, 144),
    )
    assert second.consequence_of == "I1"


def test_story_with_right_offsets_is_one_fault() -> None:
    step = spoil(broken_story(), ("inputs.mask_indptr", ints(0, 442)))
    assert [f.check for f in findings(step)] == ["I1"]


def width_of(step: VerifyStep, width: int, **also: Any) -> VerifyStep:
    bs = len(step.inputs.qo_indptr) - 1
    changes = [(f"config.{name}", value) for name, value in also.items()]
    return spoil(step, ("inputs.qo_indptr", ints(*(width * i for i in range(bs + 1)))), *changes)


NOWHERE = (None, None, None, None)
WIDTH = ("I1", "width-mismatch", "output", "fault", None)
ROWS = ("I1", "rows-unaccounted", "output", "fault", None)
STATIC = {
    "batch-width-4": (
        lambda b: width_of(b, 4, num_draft_tokens=4),
        (*WIDTH, 1, 1, 2, 8, 10, 4, 139),
    ),
    "only-max-extend-len": (
        lambda b: spoil(b, ("inputs.max_extend_len", 9)),
        (*WIDTH, *NOWHERE, 10, 9, 1),
    ),
    "num-draft-tokens-unused": (
        lambda b: spoil(b, ("config.num_draft_tokens", 4)),
        ("I1", "width-mismatch", "latent", "latent", None, *NOWHERE, 10, 4, 1),
    ),
    "one-entry": (
        lambda b: spoil(b, ("inputs.qo_indptr.2", 19)),
        (*ROWS, 1, 11, 7, 141, 20, 19, 83),
    ),
    "first-entry": (
        lambda b: spoil(b, ("inputs.qo_indptr.0", 1)),
        (*ROWS, 0, 0, 0, None, 0, 1, 21),
    ),
    "entry-missing": (
        lambda b: spoil(b, ("inputs.qo_indptr", ints(0, 10, 20))),
        (*ROWS, 0, 20, 0, None, 30, None, 41),
    ),
    "input-ids-short": (
        lambda b: spoil(b, ("inputs.input_ids", b.inputs.input_ids[:-1])),
        (*ROWS, *NOWHERE, 30, 29, 1),
    ),
    "positions-long": (
        lambda b: spoil(b, ("inputs.positions", ints(*b.inputs.positions, 0, 0))),
        (*ROWS, *NOWHERE, 30, 32, 1),
    ),
    "slots-short": (
        lambda b: spoil(b, ("inputs.out_cache_loc", b.inputs.out_cache_loc[:20])),
        (*ROWS, *NOWHERE, 30, 20, 1),
    ),
}


@pytest.mark.parametrize(("make", "expected"), STATIC.values(), ids=STATIC)
def test_static(make: Any, expected: tuple[Any, ...]) -> None:
    assert short(findings(make(batch()))[0]) == expected
    assert [f for f in findings(make(batch()))[1:] if f.consequence_of is None] == []


def test_latent_width_is_no_fault_and_gives_way_to_offsets_that_use_it() -> None:
    step = spoil(batch(), ("config.num_draft_tokens", 4))
    offsets = lengths_to_indptr([4 * 6, 4 * 9, 4 * 7])
    found = findings(spoil(step, ("inputs.mask_indptr", offsets)))
    assert [(f.check, f.diagnosis) for f in found] == [("I4", "width-mismatch")]


def test_width_of_nobody_in_a_batch_of_one_is_no_width() -> None:
    step = spoil(story(), ("inputs.qo_indptr", ints(0, 13)))
    assert only(step).diagnosis == "rows-unaccounted"


def ragged(*changes: tuple[str, Any]) -> list[Finding]:
    return findings(spoil(batch(ragged=True), *changes))  # rows 6, 10, 7: extents 0, 6, 16, 23


def test_ragged_lengths_that_agree_are_not_asked_more() -> None:
    """Extents of other requests' rows are I2's; the second request's start follows from the first's end."""
    first, second = ragged(("inputs.qo_indptr.1", 7))
    assert short(first) == (
        *("I2", "tree-size", "acceptance", "fault", "r0", *NOWHERE),
        *(6, 7, 1),
    )
    assert (second.check, second.request, second.consequence_of) == ("I2", "r1", "I2")


def test_ragged_lengths_that_disagree() -> None:
    first, second = ragged(("inputs.qo_indptr.3", 22))
    assert short(first) == (*ROWS, 1, 17, 5, 212, 23, 22, 18)
    assert (second.check, second.request, second.consequence_of) == ("I2", "r2", "I1")


def test_ragged_outvoted_length() -> None:
    (finding,) = ragged(("inputs.input_ids", ints(*range(24))))[:1]
    assert short(finding) == (*ROWS, *NOWHERE, 23, 24, 1)


def test_ragged_width() -> None:
    first, *rest = ragged(("inputs.qo_indptr", ints(0, 8, 16, 24)), ("config.num_draft_tokens", 8))
    assert short(first) == (*WIDTH, 1, 1, 2, 12, 6, 8, 86)
    assert {f.consequence_of for f in rest} <= {"I1", "I2"}
