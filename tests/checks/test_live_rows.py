"""I9: rows that see nothing, and logits that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from engine.step import VerifyStep
from tests.checks.build import BUSHY, batch, causes, clean, findings, only, short, spoil
from tests.checks.test_mask_content import second_step
from tests.factories import ints

FULL = batch(full=True, backend="flashinfer")
FINITE = "outcome.finite_rows"


def hidden(step: VerifyStep, request: int, row: int) -> VerifyStep:
    """One row of a byte mask zeroed."""
    stride = {0: 12, 1: 15, 2: 13}[request]
    first = {0: 0, 1: 120, 2: 270}[request] + row * stride
    buffer = step.inputs.custom_mask.copy()
    buffer[first : first + stride] = 0
    return spoil(step, ("inputs.custom_mask", buffer))


def not_finite(step: VerifyStep, *rows: int) -> VerifyStep:
    return spoil(step, *((f"{FINITE}.{row}", False) for row in rows))


def zero_logits(*rows: int) -> VerifyStep:
    top2 = np.tile([[[1.0, 2.0], [2.0, 1.0]]], (30, 1, 1))
    for row in rows:
        top2[row, :, 1] = 0.0
    return spoil(FULL, ("outcome.top2", top2))


def test_empty_row_follows_from_the_mask() -> None:
    first, second = findings(hidden(FULL, 1, 3))
    assert (first.check, first.consequence_of) == ("I8", None)
    assert short(second) == (
        *("I9", "empty-row", "output", "fault", "r1"),
        *(3, 13, None, None, 1, 0, 1),
    )
    assert second.consequence_of == "I8"


def test_a_backend_that_never_reads_the_prefix_columns_sees_the_prefix() -> None:
    found = findings(hidden(batch(full=True), 1, 3))
    assert [f.check for f in found] == ["I8"]


@pytest.mark.parametrize(("rows", "count"), [((13,), 1), ((11, 16), 2)])
def test_non_finite(rows: tuple[int, ...], count: int) -> None:
    assert short(only(not_finite(FULL, *rows))) == (
        *("I9", "non-finite-logits", "output", "fault", "r1"),
        *(rows[0] - 10, rows[0], None, None, True, False, count),
    )


def test_batch_of_one() -> None:
    step = clean([BUSHY], [5], [[0, 1, 4, 7]], budget=9, full=True)
    finding = only(not_finite(step, 2))
    assert (finding.request, finding.where.node, finding.where.row) == ("r0", 2, 2)


def test_rows_of_zero_logits() -> None:
    assert short(only(zero_logits(21, 22))) == (
        *("I9", "live-rows", "output", "fault", "r2"),
        *(1, 21, None, None, True, False, 2),
    )


def test_zero_logits_in_plain_decoding_too() -> None:
    step = zero_logits(21)
    assert findings(spoil(step, ("reference.top2", step.outcome.top2))) == []


def test_padding_rows_say_nothing() -> None:
    assert findings(not_finite(FULL, 8, 9, 28)) == []
    assert findings(hidden(FULL, 2, 8)) == []


def test_rows_that_a_fault_reaches_are_its_consequence() -> None:
    """Node 2 of the second request is at the wrong position: rows 12, 16 and 19 see it."""
    wrong = spoil(FULL, ("inputs.positions.12", 50))
    assert [f.check for f in causes(not_finite(wrong, 12, 19))] == ["I9", "I10"]
    mask = FULL.inputs.custom_mask.copy()
    mask[120 + 2 * 15 + 5 + 1] = 1  # node 2 sees node 1
    leak = spoil(FULL, ("inputs.custom_mask", mask))
    assert [f.check for f in causes(not_finite(leak, 12, 19))] == ["I8"]
    assert [f.check for f in causes(not_finite(leak, 11))] == ["I8", "I9"]


def test_a_row_explains_what_sees_it_and_later_steps() -> None:
    """Row 14 was accepted, so its keys stay in the cache."""
    step = not_finite(FULL, 14)
    mismatch = spoil(step, ("reference.target_predict.17", 3))
    assert [(f.check, f.consequence_of) for f in findings(mismatch)] == [
        ("I9", None),
        ("I22", "I9"),
    ]
    after = not_finite(second_step(full=True, backend="flashinfer"), 10, 11)
    found = [f for f in findings(step, after) if f.step == 1]
    assert [(f.check, f.consequence_of) for f in found] == [("I9", "I9")]


def test_two_requests_are_two_causes() -> None:
    assert [f.request for f in causes(not_finite(FULL, 3, 23))] == ["r0", "r2"]
    assert ints(1).dtype == np.int64
