"""I10: prefix length plus depth."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import batch, findings, only, short, spoil

DEPTHS = [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]  # of the second request, prefix 5, rows 10 … 19


def second(values: list[int]) -> VerifyStep:
    return spoil(batch(), *[(f"inputs.positions.{10 + i}", v) for i, v in enumerate(values)])


CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "rows-counted": (
        second([5 + row for row in range(10)]),
        ("flattened-positions", "r1", 2, 12, 6, 7, 8),
    ),
    "old-prefix": (second([3 + d for d in DEPTHS]), ("constant-offset", "r1", 0, 10, 5, 3, 10)),
    "one-late": (second([6 + d for d in DEPTHS]), ("constant-offset", "r1", 0, 10, 5, 6, 10)),
    "one-row": (spoil(batch(), ("inputs.positions.24", 9)), ("position", "r2", 4, 24, 4, 9, 1)),
    "root": (spoil(batch(), ("inputs.positions.0", 0)), ("position", "r0", 0, 0, 2, 0, 1)),
    "rows-counted-but-one": (
        second([5, 6, 7, 8, 9, 10, 11, 12, 13, 99]),
        ("position", "r1", 2, 12, 6, 7, 8),
    ),
    "without-the-prefix": (second(DEPTHS), ("constant-offset", "r1", 0, 10, 5, 0, 10)),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_diagnoses(step: VerifyStep, expected: tuple[Any, ...]) -> None:
    diagnosis, request, node, row, want, have, count = expected
    assert short(only(step)) == (
        *("I10", diagnosis, "output", "fault", request),
        *(node, row, None, None, want, have, count),
    )


def test_on_a_chain_rows_are_depths() -> None:
    assert findings(spoil(batch(), *[(f"inputs.positions.{i}", 2 + i) for i in range(6)])) == []


def test_padding_rows_may_hold_any_position() -> None:
    assert findings(spoil(batch(), ("inputs.positions.9", 12), ("inputs.positions.29", 3))) == []
