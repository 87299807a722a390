"""I20: what was emitted."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import batch, causes, findings, only, short, spoil
from tests.factories import ints

FULL = batch(full=True)  # emitted 2 3 92 | 2 5 7 107 | 5 7 116; 1000 tokens, stop 999, mask 998
EMITTED = "outcome.emitted"


def emitted(request: int, *tokens: int, step: VerifyStep = FULL) -> VerifyStep:
    return spoil(step, (f"{EMITTED}.{request}", ints(*tokens)))


STOP = spoil(FULL, ("config.eos_token_ids", ints(7)))  # node 7 of r1 and node 6 of r2
STOPPED = emitted(2, 5, 7, step=emitted(1, 2, 5, 7, step=STOP))
RIGHT = [2, 5, 7, 107]
UNKNOWN = spoil(FULL, ("outcome.bonus_tokens", None))

# (diagnosis, request, node, expected, found, count)
CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "past-stop": (
        emitted(1, *RIGHT, step=STOPPED),
        ("past-stop", "r1", None, [2, 5, 7], RIGHT, 1),
    ),
    "minus-one": (
        emitted(1, 2, -1, 7, 107),
        ("placeholder-token", "r1", 4, RIGHT, [2, -1, 7, 107], 1),
    ),
    "mask-token": (
        emitted(1, 2, 5, 7, 998),
        ("placeholder-token", "r1", None, RIGHT, [2, 5, 7, 998], 1),
    ),
    "beyond-the-vocabulary": (
        emitted(1, 2, 5, 1007, 107),
        ("token-range", "r1", 7, RIGHT, [2, 5, 1007, 107], 1),
    ),
    "accepted-beyond-the-vocabulary": (
        spoil(FULL, ("config.vocab_size", 110), ("config.eos_token_ids", ints(109))),
        ("token-range", "r2", None, "tokens of the vocabulary", [5, 7, 116], 1),
    ),
    "bonus-left-out": (emitted(1, 2, 5, 7), ("emitted", "r1", None, RIGHT, [2, 5, 7], 1)),
    "with-root": (
        emitted(1, 1, 2, 5, 7, 107),
        ("emitted", "r1", 1, RIGHT, [1, 2, 5, 7, 107], 5),
    ),
    "swapped": (emitted(2, 7, 5, 116), ("emitted", "r2", 4, [5, 7, 116], [7, 5, 116], 2)),
    "cut-before-the-stop": (
        emitted(1, 2, 5, step=STOPPED),
        ("emitted", "r1", 7, [2, 5, 7], [2, 5], 1),
    ),
    "nothing-known-and-two-things-wrong": (
        emitted(1, 2, -1, 1007, 107, step=UNKNOWN),
        ("token-range", "r1", None, "tokens of the vocabulary", [2, -1, 1007, 107], 2),
    ),
    "nothing-known-and-past-a-stop-of-nobody": (
        emitted(1, 2, 1007, 999, 5, step=UNKNOWN),
        ("output", "r1", None, [2, 1007, 999], [2, 1007, 999, 5], 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    step, (diagnosis, request, node, expected, found, count) = CASES[name]
    row = None if node is None else 10 * int(request[1]) + node
    assert short(only(step)) == (
        *("I20", diagnosis, "output", "fault", request),
        *(node, row, None, None, expected, found, count),
    )


def test_ends_with_the_stop() -> None:
    assert findings(STOPPED) == []


def test_a_mask_token_that_the_target_chose_is_a_token() -> None:
    assert findings(spoil(FULL, ("config.mask_token_id", 107))) == []


def test_without_path_and_bonus_only_the_tokens_themselves_are_judged() -> None:
    assert findings(emitted(1, 3, 3, step=UNKNOWN)) == []


def test_what_follows_from_a_wrong_acceptance() -> None:
    """Emitted tokens that follow the record are silent; those that are right beside it follow from the record."""
    bonus = spoil(FULL, ("outcome.bonus_tokens.1", 77))
    assert [f.check for f in findings(emitted(1, 2, 5, 7, 77, step=bonus))] == ["I14"]
    assert [(f.check, f.consequence_of) for f in findings(bonus)] == [("I14", None), ("I20", "I14")]
    length = spoil(emitted(1, 2, 107), ("outcome.accept_length.1", 2))
    assert {f.check: f.consequence_of for f in findings(length)}["I20"] == "I13"
    path = spoil(FULL, ("outcome.accept_index.1.3", -1), ("outcome.accept_length.1", 3))
    assert only(path).check == "I13"


def test_unrelated_tokens_stand_alone() -> None:
    step = emitted(1, 3, 3, step=spoil(FULL, ("outcome.bonus_tokens.1", 77)))
    assert [f.check for f in causes(step)] == ["I14", "I20"]
