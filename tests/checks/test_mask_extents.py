"""I4: starts of the requests' masks, and the end of the buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.step import VerifyStep
from tests.checks.build import batch, causes, findings, lengths_to_indptr, only, short, spoil
from tests.factories import example_step, ints

NOWHERE = (None, None, None, None)


def cut(step: VerifyStep, length: int) -> VerifyStep:
    return spoil(step, ("inputs.custom_mask", step.inputs.custom_mask[:length]))


CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "width-4": (
        spoil(
            batch(),
            ("inputs.mask_indptr", ints(0, 24, 60, 88)),  # 4 * (2 + 4), 4 * (5 + 4), 4 * (3 + 4)
            ("config.num_draft_tokens", 4),
        ),
        ("width-mismatch", "output", 0, 10, 5, 29, 120, 24, 106),
    ),
    "width-of-the-block": (
        spoil(
            batch(),
            ("inputs.mask_indptr", ints(0, 64 * 66, 64 * 135, 64 * 202)),
        ),
        ("width-mismatch", "output", 0, 10, 5, 4229, 120, 4224, 48),
    ),
    "prefix-only": (
        spoil(batch(), ("inputs.mask_indptr", ints(0, 20, 70, 100))),
        ("prefix-only-width", "output", 0, 10, 6, 26, 120, 20, 95),
    ),
    "buffer-cut": (
        cut(batch(), 360),  # row 26 ends at 270 + 7 * 13 = 361
        ("mask-shorter-than-indptr", "crash", 6, 26, 12, 360, 400, 360, 40),
    ),
    "buffer-cut-in-padding": (
        cut(batch(), 399),
        ("mask-shorter-than-indptr", "crash", *NOWHERE, 400, 399, 1),
    ),
    "end-past-the-buffer": (
        spoil(batch(), ("inputs.mask_indptr.3", 402)),
        ("mask-shorter-than-indptr", "crash", *NOWHERE, 400, 402, 1),
    ),
    "end-before-the-buffer": (
        spoil(batch(), ("inputs.mask_indptr.3", 398)),
        ("mask-extent", "output", *NOWHERE, 400, 398, 1),
    ),
    "start-of-the-third": (
        spoil(batch(), ("inputs.mask_indptr.2", 271)),
        ("mask-extent", "output", 0, 20, 3, 274, 270, 271, 22),
    ),
    "entry-missing": (
        spoil(batch(), ("inputs.mask_indptr", ints(0, 120, 270))),
        ("mask-extent", "output", 0, 20, 0, None, 400, None, 41),
    ),
    "batch-of-one": (
        spoil(example_step(), ("inputs.mask_indptr", ints(1, 24))),
        ("mask-extent", "output", 0, 0, 2, 3, 0, 1, 11),
    ),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_diagnoses(step: VerifyStep, expected: tuple[Any, ...]) -> None:
    diagnosis, effect, *rest = expected
    assert short(only(step)) == ("I4", diagnosis, effect, "fault", None, *rest)


def test_count_of_a_shifted_start_by_hand() -> None:
    """Request 2 read one cell later: every tree cell that differs from its right neighbour."""
    mask = batch().inputs.custom_mask[270:].reshape(10, 13)
    flat = np.append(mask.flatten(), 0)
    count = sum(
        flat[row * 13 + column] != flat[row * 13 + column + 1]
        for row in range(7)
        for column in range(3, 13)
    )
    assert only(spoil(batch(), ("inputs.mask_indptr.2", 271))).count == count


def test_bits_are_counted_in_cells_and_cut_in_bytes() -> None:
    step = batch(encoding="bits")
    assert step.inputs.mask_indptr.tolist() == [0, 120, 270, 400]
    assert step.inputs.byte_indptr.tolist() == [0, 15, 34, 51]
    # Bytes 34 + 11 hold cells 88 … 95 of the third request: row 26 from column 10 on.
    assert short(only(cut(step, 45))) == (
        *("I4", "mask-shorter-than-indptr", "crash", "fault", None),
        *(6, 26, 10, 45, 51, 45, 6),
    )


def test_padded_requests_need_their_cells_too() -> None:
    step = batch(padded=1)  # 10 * (1 + 10) cells more
    assert only(cut(step, 400)).diagnosis == "mask-shorter-than-indptr"


def test_offsets_that_follow_wrong_rows_are_a_consequence() -> None:
    rows = [9, 11, 10]
    offsets = lengths_to_indptr([r * (p + r) for r, p in zip(rows, [2, 5, 3], strict=True)])
    step = spoil(batch(), ("inputs.qo_indptr.1", 9), ("inputs.mask_indptr", offsets))
    first, second = findings(step)
    assert (first.check, second.check, second.consequence_of) == ("I1", "I4", "I1")


def test_other_offsets_than_the_wrong_rows_give_stand_alone() -> None:
    step = spoil(batch(), ("inputs.qo_indptr.1", 9), ("inputs.mask_indptr.2", 300))
    assert [f.check for f in causes(step)] == ["I1", "I4"]


def test_a_buffer_built_at_the_wrong_starts_is_one_fault() -> None:
    """The third request lies four cells late, and ``mask_indptr`` says so."""
    mask = batch().inputs.custom_mask
    late = np.concatenate([mask[:270], np.zeros(4, np.uint8), mask[270:]])
    step = spoil(
        batch(), ("inputs.custom_mask", late), ("inputs.mask_indptr", ints(0, 120, 274, 404))
    )
    found = findings(step)
    assert [(f.check, f.request, f.consequence_of) for f in found] == [
        ("I4", None, None),
        ("I8", "r2", "I4"),
    ]


def test_a_cut_buffer_with_a_wrong_cell_is_two_faults() -> None:
    """Cells 355 and 357 of row 26 are missing, which is I4's; cell 300 (row 22, node 1) is wrong besides."""
    found = causes(cut(spoil(batch(), ("inputs.custom_mask.300", 0)), 355))
    assert [(f.check, f.where.row, f.count) for f in found] == [("I4", 26, 45), ("I8", 22, 1)]
    assert found[1].where.cells == ((22, 4),)


def test_a_cut_buffer_with_a_latent_cell_is_one_fault() -> None:
    found = causes(cut(spoil(batch(), ("inputs.custom_mask.296", 0)), 360))
    assert [f.check for f in found] == ["I4"]  # row 22, column 0, which Triton does not read
