"""I19: steps of several ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.checks.finding import Finding
from engine.checks.registry import TraceChecker, check_trace
from engine.step import VerifyStep
from tests.checks.build import BUSHY, batch, causes, clean, findings, on_ranks, short, spoil
from tests.factories import ints

FULL = batch(full=True)


def with_rank(rank: int, *changes: tuple[str, Any], world: int = 3) -> list[VerifyStep]:
    steps = on_ranks(FULL, world)
    steps[rank] = spoil(steps[rank], *changes)
    return steps


def apart(*steps: VerifyStep) -> list[Finding]:
    return [f for f in findings(*steps) if f.check == "I19"]


# changes of rank 1, then (request, node, row, expected, found, count)
CASES: dict[str, tuple[list[tuple[str, Any]], tuple[Any, ...]]] = {
    "tokens": ([("requests.1.tree.tokens.3", 40)], ("r1", 3, 13, 4, 40, 1)),
    "predict": ([("outcome.target_predict.16", 8)], ("r1", 6, 16, 106, 8, 1)),
    "accepted": ([("outcome.accept_index.1.3", -1)], ("r1", 7, 17, 7, None, 1)),
    "bonus": ([("outcome.bonus_tokens.1", 77)], ("r1", None, None, 107, 77, 1)),
    "length": ([("outcome.accept_length.1", 3)], ("r1", None, None, 4, 3, 1)),
    "predict-before-bonus": (
        [("outcome.target_predict.26", 8), ("outcome.bonus_tokens.2", 8)],
        ("r2", 6, 26, 116, 8, 1),
    ),
}


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, world: int) -> None:
    changes, (request, node, row, expected, found, count) = CASES[name]
    (finding,) = apart(*with_rank(1, *changes, world=world))
    assert short(finding) == (
        *("I19", "rank-divergence", "hang", "fault", request),
        *(node, row, None, None, expected, found, count),
    )
    assert (finding.rank, finding.step) == (1, 0)


def test_the_majority_is_right() -> None:
    (finding,) = apart(*with_rank(0, ("outcome.target_predict.16", 8)))
    assert (finding.rank, finding.expected, finding.found) == (0, 106, 8)


def test_of_two_ranks_the_first_is_taken_for_right() -> None:
    (finding,) = apart(*with_rank(0, ("outcome.target_predict.16", 8), world=2))
    assert (finding.rank, finding.expected, finding.found) == (1, 8, 106)


def test_batch_of_one() -> None:
    steps = on_ranks(clean([BUSHY], [5], [[0, 1, 4, 7]], budget=9, full=True), 2)
    (finding,) = apart(steps[0], spoil(steps[1], ("outcome.target_predict.3", 8)))
    assert (finding.request, finding.where.row) == ("r0", 3)


def test_a_fault_of_the_rank_that_reaches_the_row_explains_it() -> None:
    steps = with_rank(1, ("inputs.positions.12", 50), ("outcome.target_predict.16", 8))
    assert [f.consequence_of for f in apart(*steps)] == ["I10"]
    steps = with_rank(1, ("inputs.positions.12", 50), ("outcome.target_predict.13", 8))
    assert [f.consequence_of for f in apart(*steps)] == [None]


@pytest.mark.parametrize(
    ("name", "cause"), [("accepted", "I13"), ("bonus", "I14"), ("length", "I13")]
)
def test_a_wrong_record_explains_what_differs(name: str, cause: str) -> None:
    assert [f.consequence_of for f in apart(*with_rank(1, *CASES[name][0]))] == [cause]


def test_a_mismatch_with_plain_decoding_follows() -> None:
    steps = with_rank(1, *CASES["predict"][0])
    assert [(f.check, f.rank, f.consequence_of) for f in findings(*steps)] == [
        ("I19", 1, None),
        ("I22", 1, "I19"),
    ]


def test_a_near_tie_is_named_and_still_a_fault() -> None:
    top2 = np.full((30, 2, 2), np.nan)
    top2[16] = [[106, 1.0], [8, 1.0]]
    other = top2.copy()
    other[16] = [[8, 1.0], [106, 1.0]]
    steps = on_ranks(spoil(FULL, ("outcome.top2", top2)), 2)
    steps[1] = spoil(steps[1], ("outcome.top2", other), ("outcome.target_predict.16", 8))
    (finding,) = apart(*steps)
    assert finding.verdict == "fault"
    assert finding.message == (
        "request r1: rank 1 differs from rank 0 in predict, row 16: 8, should be 106; "
        "a near-tie that the ranks resolve differently"
    )


def test_skipped_without_several_ranks() -> None:
    for steps in ([FULL], [spoil(FULL, ("world_size", 2))]):
        report = check_trace(steps)
        assert {f.check: f.message for f in report.skipped} == {
            "I19": "ranks lacked inputs: needs several ranks"
        }
        assert "ranks" not in report.checks


def test_ranks_with_requests_of_their_own_are_not_compared() -> None:
    steps = on_ranks(FULL, 2)
    other = spoil(steps[1], *((f"requests.{n}.rid", f"s{n}") for n in range(3)))
    assert apart(steps[0], other) == []


@pytest.mark.parametrize("by_rank", [False, True])
def test_whatever_order_the_ranks_come_in(by_rank: bool) -> None:
    """Step by step, or one rank's recording behind the other's; findings are in order of time and of the checks."""
    first = with_rank(1, ("outcome.target_predict.16", 8), ("outcome.emitted.1", ints(3)))
    later = [spoil(step, ("step", 5)) for step in first]
    steps = [*first, *later]
    if by_rank:
        steps.sort(key=lambda step: step.rank)
    found = findings(*steps)
    assert [(f.step, f.check) for f in found] == [
        (number, check) for number in (0, 5) for check in ("I19", "I20", "I22")
    ]


def test_missing_ranks_are_compared_at_the_end() -> None:
    steps = with_rank(1, *CASES["predict"][0])[:2]
    checker = TraceChecker()
    fed = [finding for step in steps for finding in checker.feed(step)]
    assert [f.check for f in fed] == ["I22"]
    for _ in range(2):
        report = checker.report()
        assert [f.check for f in report.findings] == ["I19", "I22"]
        assert "ranks" in report.checks


def test_the_last_rank_brings_the_findings() -> None:
    checker = TraceChecker()
    fed = [[f.check for f in checker.feed(step)] for step in with_rank(1, *CASES["predict"][0])]
    assert fed == [[], ["I22"], ["I19"]]
    assert [f.check for f in causes(*with_rank(1, *CASES["predict"][0]))] == ["I19"]
