"""I17: whose recurrent state is kept."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import CHAIN, batch, causes, clean, findings, only, short, spoil
from tests.factories import ints

FULL = batch(full=True)  # last accepted nodes 2, 7, 6 of paths of 3, 4, 3
KEPT = "commit.recurrent_index"

CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "by-length": (spoil(FULL, (f"{KEPT}.1", 3)), ("commit-by-length", "r1", 7, 17, 7, 3)),
    "by-length-of-the-third": (
        spoil(FULL, (f"{KEPT}.2", 2)),
        ("commit-by-length", "r2", 6, 26, 6, 2),
    ),
    "one-before": (spoil(FULL, (f"{KEPT}.1", 4)), ("recurrent-commit", "r1", 7, 17, 7, 4)),
    "root": (spoil(FULL, (f"{KEPT}.0", 0)), ("recurrent-commit", "r0", 2, 2, 2, 0)),
    "no-node": (spoil(FULL, (f"{KEPT}.2", 99)), ("recurrent-commit", "r2", 6, 26, 6, 99)),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    step, (diagnosis, request, node, row, expected, found) = CASES[name]
    assert short(only(step)) == (
        *("I17", diagnosis, "output", "fault", request),
        *(node, row, None, None, expected, found, 1),
    )


def test_on_a_chain_the_length_is_right() -> None:
    step = clean([CHAIN], [3], [[0, 1, 2]], budget=5, full=True)
    assert findings(spoil(step, (f"{KEPT}.0", 2))) == []


def test_what_follows_from_a_wrong_acceptance() -> None:
    """The path that was taken, a length that was miscounted, and a row out of range taken at its word."""
    path = spoil(
        FULL, ("outcome.accept_index.1", ints(10, 11, 14, -1)), ("outcome.accept_length.1", 3)
    )
    assert only(spoil(path, (f"{KEPT}.1", 4))).check == "I13"
    assert only(path).check == "I13"  # the right state was kept
    length = spoil(FULL, ("outcome.accept_length.1", 2), (f"{KEPT}.1", 1))
    assert {f.check: f.consequence_of for f in findings(length)}["I17"] == "I13"
    outside = spoil(FULL, ("outcome.accept_index.1.3", 24), (f"{KEPT}.1", 14))
    assert {f.check: f.consequence_of for f in findings(outside)}["I17"] == "I14"


def test_an_unrelated_state_stands_alone() -> None:
    step = spoil(FULL, ("outcome.accept_index.1.3", -1), (f"{KEPT}.1", 2))
    assert [f.check for f in causes(step)] == ["I13", "I17"]


def test_a_path_past_a_stop_may_keep_either_end() -> None:
    step = spoil(FULL, ("config.eos_token_ids", ints(5)), ("outcome.emitted.1", ints(2, 5)))
    step = spoil(step, ("outcome.emitted.2", ints(5)))
    for node in (4, 6):
        assert findings(spoil(step, (f"{KEPT}.2", node))) == []
