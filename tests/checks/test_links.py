"""I12: first child and next sibling."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import batch, causes, findings, only, short, spoil
from tests.factories import ints

TOKEN, SIBLING = "links.retrieve_next_token", "links.retrieve_next_sibling"


def change(*changes: tuple[str, int]) -> VerifyStep:
    return spoil(batch(), *changes)


CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "siblings-end-early": (change((f"{SIBLING}.1.1", -1)), ("lost-sibling", "r1", 1, 11, 2, -1, 1)),
    "sibling-skipped": (change((f"{SIBLING}.1.1", 3)), ("lost-sibling", "r1", 1, 11, 2, 3, 1)),
    "two-siblings-lost": (
        change((f"{SIBLING}.1.2", -1), (f"{SIBLING}.1.7", -1)),
        ("lost-sibling", "r1", 2, 12, 3, -1, 2),
    ),
    "no-child": (change((f"{TOKEN}.1.6", -1)), ("lost-child", "r1", 6, 16, 9, -1, 1)),
    "first-child-skipped": (change((f"{TOKEN}.2.0", 4)), ("lost-child", "r2", 0, 20, 1, 4, 1)),
    "chain-cut": (change((f"{TOKEN}.0.3", -1)), ("lost-child", "r0", 3, 3, 4, -1, 1)),
    "child-of-another": (change((f"{TOKEN}.1.6", 8)), ("links", "r1", 6, 16, 9, 8, 1)),
    "sibling-of-another": (change((f"{SIBLING}.1.4", 6)), ("links", "r1", 4, 14, 5, 6, 1)),
    "sibling-of-the-root": (change((f"{SIBLING}.2.0", 4)), ("links", "r2", 0, 20, -1, 4, 1)),
    "sibling-loop": (change((f"{SIBLING}.1.3", 1)), ("links", "r1", 3, 13, -1, 1, 1)),
    "child-and-sibling": (
        change((f"{TOKEN}.1.6", -1), (f"{SIBLING}.1.1", -1)),
        ("links", "r1", 1, 11, 2, -1, 2),
    ),
    "padding-linked": (change((f"{TOKEN}.2.6", 7)), ("links", "r2", 6, 26, -1, 7, 1)),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_diagnoses(step: VerifyStep, expected: tuple[Any, ...]) -> None:
    diagnosis, request, node, row, want, have, count = expected
    assert short(only(step)) == (
        *("I12", diagnosis, "acceptance", "fault", request),
        *(node, row, None, None, want, have, count),
    )


def test_links_of_padding_rows_do_not_matter() -> None:
    assert findings(change((f"{TOKEN}.0.7", 8), (f"{SIBLING}.2.9", 1))) == []


def test_lists_may_cover_the_nodes_only() -> None:
    step = spoil(
        batch(), (f"{TOKEN}.0", ints(1, 2, 3, 4, 5, -1)), (f"{SIBLING}.0", ints(*[-1] * 6))
    )
    assert findings(step) == []


def test_one_of_the_two_arrays_is_enough() -> None:
    step = spoil(change((f"{SIBLING}.1.1", -1)), (TOKEN, None))
    assert only(step).diagnosis == "lost-sibling"
    assert findings(spoil(step, (SIBLING, batch().links.retrieve_next_sibling))) == []


def walked() -> VerifyStep:
    """Node 4's first child is lost, so the walk stops there."""
    return spoil(
        change((f"{TOKEN}.1.4", 8)),
        ("outcome.accept_index.1", ints(10, 11, 14, -1, -1)),
        ("outcome.accept_length.1", 3),
        ("outcome.bonus_tokens.1", 7),
        ("commit.seq_lens.1", 8),
        ("commit.kv.0.nodes.1", ints(0, 1, 4)),
        ("commit.kv.1.nodes.1", ints(0, 1, 4)),
    )


def test_the_walk_over_wrong_links_is_a_consequence() -> None:
    found = findings(walked())
    assert [(f.check, f.diagnosis, f.consequence_of) for f in found] == [
        ("I12", "lost-child", None),
        ("I13", "path-not-maximal", "I12"),
    ]


def test_another_wrong_walk_stands_alone() -> None:
    step = spoil(
        change((f"{TOKEN}.1.6", -1)),
        ("outcome.accept_index.1", ints(10, 11, 14, -1, -1)),
        ("outcome.bonus_tokens.1", 7),
    )
    assert [f.check for f in causes(step)] == ["I12", "I13"]
