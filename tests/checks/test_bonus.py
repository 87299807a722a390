"""I14: range of the accepted rows, and the bonus token."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import PredictCompacted, VerifyStep
from tests.checks.build import batch, causes, findings, only, short, spoil
from tests.factories import ints

INDEX, BONUS = "outcome.accept_index", "outcome.bonus_tokens"
# Accepted rows 0 1 2 | 10 11 14 17 | 20 24 26 predict 2 3 92 | 2 5 7 107 | 5 7 116.
BY_FIVE = PredictCompacted(5, ints(2, 3, 92, 0, 0, 2, 5, 7, 107, 0, 5, 7, 116, 0, 0))


def compacted(*changes: tuple[str, Any]) -> VerifyStep:
    return spoil(batch(), ("outcome.predict_compacted", BY_FIVE), *changes)


RANGE: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "row-of-the-next-request": (spoil(batch(), (f"{INDEX}.1.2", 24)), ("r1", 24, "10 … 19", 24)),
    "row-past-the-batch": (spoil(batch(), (f"{INDEX}.2.1", 30)), ("r2", 30, "20 … 29", 30)),
    "node-numbers": (spoil(batch(), (f"{INDEX}.1", ints(0, 1, 4, 7))), ("r1", 0, "10 … 19", 0)),
    "hole": (spoil(batch(), (f"{INDEX}.1.1", -1)), ("r1", None, "10 … 19", -1)),
    "no-root": (spoil(batch(), (f"{INDEX}.0", ints(-1, -1))), ("r0", None, "0 … 9", -1)),
    "empty": (spoil(batch(), (f"{INDEX}.0", ints())), ("r0", None, "0 … 9", -1)),
    "below": (spoil(batch(), (f"{INDEX}.0.2", -7)), ("r0", None, "0 … 9", -7)),
}


@pytest.mark.parametrize(("step", "expected"), RANGE.values(), ids=RANGE)
def test_range(step: VerifyStep, expected: tuple[Any, ...]) -> None:
    """I13 is skipped for the request, and its commit is right."""
    request, row, want, have = expected
    (finding,) = findings(step)
    assert short(finding) == (
        *("I14", "accept-index-range", "crash", "fault", request),
        *(None, row, None, None, want, have, 1),
    )


WRONG: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "any-token": (
        spoil(batch(), (f"{BONUS}.1", 77)),
        ("bonus", "r1", 7, 17, 107, 77),
    ),
    "first-request": (
        spoil(batch(), (f"{BONUS}.0", 77)),
        ("bonus", "r0", 2, 2, 92, 77),
    ),
    "an-accepted-token": (
        spoil(batch(), (f"{BONUS}.1", 7)),
        ("bonus-stride", "r1", 7, 17, 107, 7),
    ),
    "rows-as-if-adjacent": (  # row 20 + 2 instead of row 26
        spoil(batch(), (f"{BONUS}.2", 112)),
        ("bonus-stride", "r2", 6, 26, 116, 112),
    ),
    "rows-at-the-block": (  # 1 * 9 + 3 instead of row 17
        spoil(batch(), ("config.block_size", 9), (f"{BONUS}.1", 102)),
        ("bonus-stride", "r1", 7, 17, 107, 102),
    ),
    "compacted-by-the-block": (  # 2 * 3 + 2 = 8, the second request's last
        compacted(("config.block_size", 3), (f"{BONUS}.2", 107)),
        ("bonus-stride", "r2", 6, 26, 116, 107),
    ),
    "compacted-any-token": (compacted((f"{BONUS}.2", 77)), ("bonus", "r2", 6, 26, 116, 77)),
}


@pytest.mark.parametrize("name", WRONG)
def test_bonus(name: str) -> None:
    step, (diagnosis, request, node, row, want, have) = WRONG[name]
    (finding,) = [f for f in findings(step) if f.check != "I7"]  # a block of 3 is too shallow
    assert short(finding) == (
        *("I14", diagnosis, "output", "fault", request),
        *(node, row, None, None, want, have, 1),
    )


def test_compacted_predictions_read_rightly_are_clean() -> None:
    assert findings(compacted()) == []


def test_range_and_wrong_bonus_of_another_request_are_two_causes() -> None:
    step = spoil(batch(), (f"{INDEX}.1.2", 24), (f"{BONUS}.2", 77))
    assert [(f.request, f.diagnosis) for f in causes(step)] == [
        ("r1", "accept-index-range"),
        ("r2", "bonus"),
    ]


def test_commit_of_the_same_wrong_rows_is_a_consequence() -> None:
    step = spoil(
        batch(),
        (f"{INDEX}.1.2", 24),
        ("commit.kv.0.nodes.1", ints(0, 1, 14, 7)),
        ("commit.kv.1.nodes.1", ints(0, 1, 14, 7)),
    )
    found = findings(step)
    assert [(f.check, f.consequence_of) for f in found] == [
        ("I14", None),
        ("I15", "I14"),
        ("I15", "I14"),
    ]


def test_other_commit_beside_a_wrong_row_stands_alone() -> None:
    step = spoil(batch(), (f"{INDEX}.1.2", 24), ("commit.kv.1.nodes.1", ints(0, 1, 2, 3)))
    assert [(f.check, f.diagnosis) for f in causes(step)] == [
        ("I14", "accept-index-range"),
        ("I15", "layer-not-compacted"),
    ]


def test_first_cause_of_a_wrong_path_with_its_own_bonus_is_the_path() -> None:
    step = spoil(batch(), (f"{INDEX}.1", ints(10, 12, -1)))
    assert only(step).check == "I13"
