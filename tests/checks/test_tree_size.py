"""I2: counted nodes, budget, tokens."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import TreeRecord, VerifyStep
from engine.tree import make_tree
from tests.checks.build import batch, clean, findings, only, short, spoil
from tests.factories import ints

NOWHERE = (None, None, None)


def with_zeros(*nodes: int) -> VerifyStep:
    """The batch with token id 0 at nodes of the second request."""
    changes = [(f"requests.1.tree.tokens.{n}", 0) for n in nodes]
    return spoil(batch(), *changes, *[(f"inputs.input_ids.{10 + n}", 0) for n in nodes])


def over_budget() -> VerifyStep:
    """Five nodes where the settings left room for four."""
    step = clean([make_tree([-1, 0, 0, 1], [1, 2, 3, 4])], [2], [[0, 1]], budget=3)
    tree = TreeRecord(ints(-1, 0, 0, 1, 3), ints(1, 2, 3, 4, 5))
    return spoil(step, ("requests.0.tree", tree))


CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "one-token-is-zero": (
        spoil(with_zeros(2), ("requests.1.counted_nodes", 9)),
        ("tree-size-from-tokens", "acceptance", "r1", 2, None, 10, 9, 1),
    ),
    "two-tokens-are-zero": (
        spoil(with_zeros(5, 8), ("requests.1.counted_nodes", 8)),
        ("tree-size-from-tokens", "acceptance", "r1", 5, None, 10, 8, 2),
    ),
    "root-counted-by-its-token-too": (
        spoil(with_zeros(0), ("requests.1.counted_nodes", 9)),
        ("tree-size-from-tokens", "acceptance", "r1", 0, None, 10, 9, 1),
    ),
    "counted-too-few-without-zeros": (
        spoil(batch(), ("requests.1.counted_nodes", 7)),
        ("tree-size", "acceptance", "r1", None, None, 10, 7, 3),
    ),
    "counted-too-many": (
        spoil(batch(), ("requests.2.counted_nodes", 10)),
        ("tree-size", "acceptance", "r2", None, None, 7, 10, 3),
    ),
    "over-budget": (over_budget(), ("over-budget", "acceptance", "r0", 4, None, 4, 5, 1)),
    "tokens-of-two-nodes": (
        spoil(batch(), ("inputs.input_ids.13", 33), ("inputs.input_ids.15", 34)),
        ("tokens-differ", "output", "r1", 3, 13, 4, 33, 2),
    ),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_diagnoses(step: VerifyStep, expected: tuple[Any, ...]) -> None:
    diagnosis, effect, request, node, row, want, have, count = expected
    assert short(only(step)) == (
        *("I2", diagnosis, effect, "fault", request),
        *(node, row, None, None, want, have, count),
    )


def test_zero_tokens_counted_rightly_are_clean() -> None:
    assert findings(spoil(with_zeros(2), ("requests.1.counted_nodes", 10))) == []


def test_tokens_of_padding_rows_do_not_matter() -> None:
    assert findings(spoil(batch(), ("inputs.input_ids.8", 44))) == []


def test_walk_over_the_recorded_tokens_is_a_consequence() -> None:
    """Node 1 was sent as another token, so the target's choice of it matched nothing."""
    step = spoil(
        batch(),
        ("inputs.input_ids.11", 33),
        ("outcome.accept_index.1", ints(10, -1, -1, -1, -1)),
        ("outcome.accept_length.1", 1),
        ("outcome.bonus_tokens.1", 2),
        ("commit.seq_lens.1", 6),
        ("commit.kv.0.nodes.1", ints(0)),
        ("commit.kv.1.nodes.1", ints(0)),
    )
    first, second = findings(step)
    assert (first.check, first.diagnosis, first.consequence_of) == ("I2", "tokens-differ", None)
    assert (second.check, second.diagnosis, second.consequence_of) == (
        *("I13", "path-not-maximal", "I2"),
    )


def test_a_tree_cut_to_the_counted_nodes_explains_links_walk_and_mask() -> None:
    """Nodes 8 and 9 were taken for padding: no links, cleared rows, never accepted."""
    mask = batch().inputs.custom_mask.copy()
    mask[120 + 8 * 15 : 270] = 0
    step = spoil(
        batch(),
        ("requests.1.counted_nodes", 8),
        ("inputs.custom_mask", mask),
        ("links.retrieve_next_sibling.1.7", -1),
        ("links.retrieve_next_token.1.6", -1),
    )
    found = findings(step)
    assert [(f.check, f.consequence_of) for f in found] == [
        ("I2", None),
        ("I8", "I2"),
        ("I12", "I2"),
    ]


def test_a_walk_that_stops_at_the_counted_nodes_is_a_consequence() -> None:
    """Node 7 was accepted by the target's choice, but the engine counted seven nodes."""
    step = spoil(
        batch(),
        ("requests.1.counted_nodes", 7),
        ("outcome.accept_index.1", ints(10, 11, 14, -1, -1)),
        ("outcome.accept_length.1", 3),
        ("outcome.bonus_tokens.1", 7),
        ("commit.seq_lens.1", 8),
        ("commit.kv.0.nodes.1", ints(0, 1, 4)),
        ("commit.kv.1.nodes.1", ints(0, 1, 4)),
    )
    assert [(f.check, f.consequence_of) for f in findings(step)] == [("I2", None), ("I13", "I2")]
