"""I13: the walk of acceptance."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step import VerifyStep
from tests.checks.build import batch, causes, findings, only, short, spoil
from tests.factories import ints

ROWS, PREFIXES = (0, 10, 20), (2, 5, 3)


def accepted(request: int, nodes: list[int], *changes: tuple[str, Any]) -> VerifyStep:
    """The batch with another path in one request; bonus and commit follow it."""
    step = spoil(batch(), *changes)
    start = ROWS[request]
    return spoil(
        step,
        (f"outcome.accept_index.{request}", ints(*(start + n for n in nodes))),
        (f"outcome.accept_length.{request}", len(nodes)),
        (
            f"outcome.bonus_tokens.{request}",
            int(step.outcome.target_predict[start + nodes[-1]]),
        ),
        (f"commit.seq_lens.{request}", PREFIXES[request] + len(nodes)),
        (f"commit.kv.0.nodes.{request}", ints(*nodes)),
        (f"commit.kv.1.nodes.{request}", ints(*nodes)),
    )


def predicts(row: int, token: int) -> list[tuple[str, Any]]:
    return [
        ("outcome.target_predict." + str(row), token),
        (f"reference.target_predict.{row}", token),
    ]


RIGHT = [0, 1, 4, 7]  # of the second request
CASES: dict[str, tuple[VerifyStep, tuple[Any, ...]]] = {
    "stopped-early": (
        accepted(1, [0, 1, 4]),
        ("path-not-maximal", "acceptance", "r1", 7, 17, RIGHT, [0, 1, 4], 1),
    ),
    "nothing-accepted": (
        accepted(2, [0]),
        ("path-not-maximal", "acceptance", "r2", 4, 24, [0, 4, 6], [0], 2),
    ),
    "judged-by-its-own-row": (  # row 12 predicts node 2's own token
        accepted(1, [0, 2], *predicts(12, 3)),
        ("shifted-logits", "output", "r1", 2, 12, RIGHT, [0, 2], 3),
    ),
    "judged-by-the-row-before": (  # node 1's children by row 10, node 0's by the last row before
        accepted(2, [0, 1, 2], *predicts(19, 2), *predicts(20, 3), *predicts(24, 2)),
        ("shifted-logits", "output", "r2", 1, 21, [0], [0, 1, 2], 2),
    ),
    "other-branch": (
        accepted(1, [0, 2, 6]),
        ("wrong-child", "output", "r1", 2, 12, RIGHT, [0, 2, 6], 3),
    ),
    "one-node-too-many": (
        accepted(0, [0, 1, 2, 3]),
        ("wrong-child", "output", "r0", 3, 3, [0, 1, 2], [0, 1, 2, 3], 1),
    ),
    "no-path": (
        accepted(1, [0, 1, 6]),
        ("acceptance", "output", "r1", 6, 16, RIGHT, [0, 1, 6], 2),
    ),
    "root-left-out": (
        accepted(1, [1, 4, 7]),
        ("acceptance", "output", "r1", 1, 11, RIGHT, [1, 4, 7], 4),
    ),
    "padding-row-accepted": (
        accepted(2, [0, 4, 6, 8]),
        ("acceptance", "output", "r2", 8, 28, [0, 4, 6], [0, 4, 6, 8], 1),
    ),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_diagnoses(step: VerifyStep, expected: tuple[Any, ...]) -> None:
    diagnosis, effect, request, node, row, want, have, count = expected
    assert short(only(step)) == (
        *("I13", diagnosis, effect, "fault", request),
        *(node, row, None, None, want, have, count),
    )


def test_length_that_is_not_the_paths() -> None:
    assert short(only(spoil(batch(), ("outcome.accept_length.1", 3)))) == (
        *("I13", "acceptance", "output", "fault", "r1"),
        *(None, None, None, None, 4, 3, 1),
    )


def test_bonus_and_commit_that_follow_a_wrong_length_are_consequences() -> None:
    step = spoil(
        batch(),
        ("outcome.accept_length.1", 3),
        ("outcome.bonus_tokens.1", 7),
        ("commit.seq_lens.1", 8),
        ("commit.kv.0.nodes.1", ints(0, 1, 4)),
        ("commit.kv.1.nodes.1", ints(0, 1, 4)),
    )
    found = findings(step)
    assert [f.check for f in found] == ["I13", "I14", "I15", "I15", "I15"]
    assert [f.consequence_of for f in found] == [None, "I13", "I13", "I13", "I13"]


def test_right_bonus_and_commit_beside_a_wrong_path_are_consequences() -> None:
    """They differ from the recorded path, and would not from the right one."""
    step = spoil(batch(), ("outcome.accept_index.1", ints(10, 11, 14, -1, -1)))
    found = findings(step)
    assert [f.check for f in found] == ["I13", "I14", "I15", "I15", "I15"]
    assert [f.consequence_of for f in found] == [None, "I13", "I13", "I13", "I13"]


def test_wrong_path_and_unrelated_commit_are_two_causes() -> None:
    step = spoil(
        accepted(1, [0, 2, 6]),
        ("commit.kv.0.nodes.1", ints(0, 1, 2)),
        ("commit.kv.1.nodes.1", ints(0, 1, 2)),
    )
    assert [(f.check, f.diagnosis) for f in causes(step)] == [
        ("I13", "wrong-child"),
        ("I15", "cropped-not-gathered"),
        ("I15", "cropped-not-gathered"),
    ]


def test_stopping_early_without_a_stop_token_is_a_fault() -> None:
    step = accepted(
        2, [0, 4], ("config.eos_token_ids", ints(7))
    )  # node 6 is token 7, node 4 is not
    assert only(step).diagnosis == "path-not-maximal"


def test_sampled_tokens_are_walked_too() -> None:
    step = spoil(accepted(1, [0, 2, 6]), ("config.temperature", 0.7))
    assert only(step).diagnosis == "wrong-child"


def test_a_stop_token_at_the_root_ends_nothing() -> None:
    step = accepted(2, [0], ("config.eos_token_ids", ints(1)))  # every root is token 1
    assert only(step).diagnosis == "path-not-maximal"
