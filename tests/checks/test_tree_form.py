"""I7: the record of the tree itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.step import VerifyStep
from engine.tree import DraftTree, make_tree
from tests.checks.build import CHAIN, batch, clean, findings, short, spoil
from tests.factories import ints

WEIGHTS = [0.0, -0.1, -0.2, -0.15, -0.3, -0.25, -0.5, -0.6, -0.7, -0.8]


def parent(node: int, value: int, request: int = 1) -> VerifyStep:
    return spoil(batch(), (f"requests.{request}.tree.parents.{node}", value))


def second(tree: DraftTree, path: list[int]) -> VerifyStep:
    """A batch of two whose second request has this tree."""
    return clean([CHAIN, tree], [2, 5], [[0, 1], path], budget=5)


LATE_PARENT = DraftTree(ints(-1, 2, 0, 1), ints(1, 2, 3, 4))
CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "orphan": (parent(6, 12), ("cycle-or-orphan", "hang", "r1", 6, "a node in 0 … 5", 12, 1)),
    "cycle": (parent(4, 7), ("cycle-or-orphan", "hang", "r1", 4, "a node in 0 … 3", 7, 1)),
    "own-parent": (
        parent(6, 6, request=2),
        ("cycle-or-orphan", "hang", "r2", 6, "a node in 0 … 5", 6, 1),
    ),
    "second-root": (parent(7, -1), ("cycle-or-orphan", "hang", "r1", 7, "a node in 0 … 6", -1, 1)),
    "root-with-parent": (parent(0, 0), ("cycle-or-orphan", "hang", "r1", 0, -1, 0, 1)),
    "duplicate": (
        second(make_tree([-1, 0, 0, 1], [1, 2, 2, 4]), [0, 1]),
        ("duplicate-sibling", "acceptance", "r1", 2, "distinct tokens among siblings", 2, 1),
    ),
    "too-deep": (
        spoil(
            second(make_tree([-1, 0, 0, 1, 3], [1, 2, 3, 4, 5]), [0, 1]),
            ("config.block_size", 3),
            ("requests.0.tree.parents", ints(-1, 0, 0, 0, 0, 0)),
        ),
        ("too-deep", "hang", "r1", 4, 2, 3, 1),
    ),
    "weights-rise-twice": (
        spoil(batch(), ("requests.1.tree.log_weights", np.array(WEIGHTS))),
        ("weights-not-sorted", "acceptance", "r1", 3, "at most -0.2", -0.15, 2),
    ),
    "child-before-parent": (
        second(LATE_PARENT, [0, 2, 1]),
        ("tree-form", "hang", "r1", 1, "a node in 0 … 0", 2, 1),
    ),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_diagnoses(step: VerifyStep, expected: tuple[Any, ...]) -> None:
    diagnosis, effect, request, node, want, have, count = expected
    finding = findings(step)[0]
    assert short(finding) == (
        *("I7", diagnosis, effect, "fault", request),
        *(node, None, None, None, want, have, count),
    )


@pytest.mark.parametrize("name", [name for name in CASES if name != "too-deep"])
def test_nothing_else_is_blamed(name: str) -> None:
    """A tree that is none has no mask, positions, links or path to compare with."""
    assert [f.check for f in findings(CASES[name][0])] == ["I7"]


def test_the_other_requests_are_still_judged() -> None:
    step = spoil(parent(6, 12), ("inputs.positions.24", 9), ("inputs.positions.12", 9))
    assert [(f.check, f.request) for f in findings(step)] == [("I7", "r1"), ("I10", "r2")]


def test_taking_the_later_of_two_equal_siblings_is_a_consequence() -> None:
    step = spoil(
        CASES["duplicate"][0],
        ("outcome.accept_index.1", ints(6, 8, -1)),
        ("outcome.bonus_tokens.1", 98),
        ("commit.kv.0.nodes.1", ints(0, 2)),
        ("commit.kv.1.nodes.1", ints(0, 2)),
    )
    assert [(f.check, f.consequence_of) for f in findings(step)] == [("I7", None), ("I13", "I7")]


def test_unknown_weights_say_nothing() -> None:
    weights = np.array([0.0, -0.1, np.nan, -0.2, -0.3, -0.4, -0.5, np.nan, -0.7, -0.8])
    assert findings(spoil(batch(), ("requests.1.tree.log_weights", weights))) == []


def test_a_rise_across_an_unknown_weight_is_found() -> None:
    weights = np.array([0.0, -0.3, np.nan, -0.2, -0.3, -0.4, -0.5, -0.6, -0.7, -0.8])
    (finding,) = findings(spoil(batch(), ("requests.1.tree.log_weights", weights)))
    assert (finding.where.node, finding.expected, finding.found) == (3, "at most -0.3", -0.2)


def test_a_tree_as_deep_as_the_block_allows_is_clean() -> None:
    step = second(make_tree([-1, 0, 0, 1, 3], [1, 2, 3, 4, 5]), [0, 1])
    assert findings(spoil(step, ("config.block_size", 6))) == []
