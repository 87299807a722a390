"""I18: what the drafter goes on from."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import (
    BUSHY,
    CHAIN,
    MIXED,
    batch,
    causes,
    clean,
    findings,
    only,
    rooted,
    short,
    spoil,
)
from tests.factories import ints

FULL = batch(full=True)
ROWS = "commit.hidden_rows"


def handed(request: int, *nodes: int) -> VerifyStep:
    return spoil(FULL, (f"{ROWS}.{request}", ints(*nodes)))


# (diagnosis, request, node, expected, found, count)
CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "first-n": (
        handed(1, 0, 1, 2, 3),
        ("hidden-rows", "r1", 4, [0, 1, 4, 7], [0, 1, 2, 3], 2),
    ),
    "without-root": (handed(2, 4, 6), ("hidden-rows", "r2", 0, [0, 4, 6], [4, 6], 3)),
    "one-more": (handed(0, 0, 1, 2, 3), ("hidden-rows", "r0", None, [0, 1, 2], [0, 1, 2, 3], 1)),
    "flat-rows": (
        handed(1, 10, 11, 14, 17),
        ("drafter-context", "r1", 0, [0, 1, 4, 7], [10, 11, 14, 17], 4),
    ),
    "padding-row": (
        handed(2, 0, 4, 8),
        ("drafter-context", "r2", 6, [0, 4, 6], [0, 4, 8], 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    step, (diagnosis, request, node, expected, found, count) = CASES[name]
    row = None if node is None else 10 * int(request[1]) + node
    assert short(only(step)) == (
        *("I18", diagnosis, "acceptance", "fault", request),
        *(node, row, None, None, expected, found, count),
    )


def after(*roots: int) -> VerifyStep:
    trees = [rooted(tree, root) for tree, root in zip((CHAIN, BUSHY, MIXED), roots, strict=True)]
    return clean(trees, [5, 9, 6], [[0, 1], [0, 2], [0, 4]], budget=9, number=1, full=True)


def test_anchor() -> None:
    """The bonus tokens of the batch are 92, 107, 116."""
    assert findings(FULL, after(92, 107, 116)) == []
    assert short(only(FULL, after(92, 7, 116))) == (
        *("I18", "drafter-anchor", "acceptance", "fault", "r1"),
        *(0, 10, None, None, 107, 7, 1),
    )


def test_a_wrong_bonus_is_the_step_befores_alone() -> None:
    broken = spoil(FULL, ("outcome.bonus_tokens.1", 77))
    assert [(f.step, f.check) for f in causes(broken, after(92, 107, 116))] == [(0, "I14")]
    assert [(f.step, f.check) for f in causes(broken, after(92, 77, 116))] == [(0, "I14")]


def test_what_follows_from_a_wrong_acceptance() -> None:
    length = spoil(handed(1, 0, 1), ("outcome.accept_length.1", 2))
    assert {f.check: f.consequence_of for f in findings(length)}["I18"] == "I13"
    outside = spoil(handed(1, 0, 1, 4, 14), ("outcome.accept_index.1.3", 24))
    assert {f.check: f.consequence_of for f in findings(outside)}["I18"] == "I14"
    path = spoil(FULL, ("outcome.accept_index.1.3", -1), ("outcome.accept_length.1", 3))
    assert only(path).check == "I13"


def test_two_requests_are_two_causes() -> None:
    step = spoil(handed(0, 0), (f"{ROWS}.2", ints(0)))
    assert [f.request for f in causes(step)] == ["r0", "r2"]
