"""What a cell is, from its behaviour alone."""

from __future__ import annotations

import pytest

from engine.isolate.cell import Cell
from engine.isolate.measured import Compared, Measured
from engine.isolate.outcome import Outcome, outcomes
from tests.isolate.results import OF, WRONG, measured, request

CELL = Cell(7, 1, False, 1, 0, 0.0, 0)
WIDE = Cell(16, 1, False, 1, 0, 0.0, 0)


def only(*requests: Compared, **changes) -> Outcome:
    return outcomes([Measured(CELL, requests, **changes)])[CELL]


@pytest.mark.parametrize("outcome", list(OF))
def test_each_outcome(outcome: Outcome) -> None:
    assert only(OF[outcome]) is outcome


@pytest.mark.parametrize(
    ("requests", "outcome"),
    [
        ([request(), WRONG], Outcome.WRONG),
        ([OF[Outcome.NEAR_TIE], WRONG], Outcome.WRONG),
        ([request(), OF[Outcome.NEAR_TIE]], Outcome.NEAR_TIE),
        ([OF[Outcome.NEAR_TIE], OF[Outcome.NONDETERMINISTIC]], Outcome.NONDETERMINISTIC),
        ([], Outcome.FAILED),
        # A margin that is not told does not excuse a text.
        ([request(first_difference=0)], Outcome.WRONG),
        # It ends early, or goes on: there is no token to have a margin of.
        ([request(first_difference=5, margin=None, near_tie=None)], Outcome.WRONG),
        # Before plain decoding parts from itself by rounding, it is one text.
        (
            [request(first_difference=1, margin=4.0, plain_parts=3, plain_near_tie=True)],
            Outcome.WRONG,
        ),
        (
            [request(first_difference=3, margin=4.0, plain_parts=3, plain_near_tie=True)],
            Outcome.NONDETERMINISTIC,
        ),
        # Plain decoding parts from itself by more than rounding: nothing is proved anywhere.
        (
            [request(first_difference=1, margin=4.0, plain_parts=3, plain_near_tie=False)],
            Outcome.NONDETERMINISTIC,
        ),
        # It differs from itself, and yet these texts are equal.
        ([request(plain_parts=3)], Outcome.CLEAN),
    ],
)
def test_the_worst_request_counts(requests: list[Compared], outcome: Outcome) -> None:
    assert only(*requests) is outcome


def test_plain_decoding_that_is_unstable_in_one_cell_excuses_every_other() -> None:
    shaky = Measured(WIDE, (request(plain_parts=1, plain_near_tie=False),))
    found = outcomes([Measured(CELL, (WRONG,)), shaky])
    assert found[CELL] is Outcome.NONDETERMINISTIC
    tied = Measured(WIDE, (request(plain_parts=1, plain_near_tie=True),))
    assert outcomes([Measured(CELL, (WRONG,)), tied])[CELL] is Outcome.WRONG


def test_an_error_is_a_failure() -> None:
    assert only(request(), error="RuntimeError: no") is Outcome.FAILED


def test_slower_than_plain_decoding_counts_on_a_server_alone() -> None:
    result = measured(CELL, Outcome.CLEAN, tokens_per_s=79.0, plain_tokens_per_s=100.0)
    assert outcomes([result])[CELL] is Outcome.CLEAN
    assert outcomes([result], speed_counts=True)[CELL] is Outcome.SLOW
    fast = measured(CELL, Outcome.CLEAN, tokens_per_s=81.0, plain_tokens_per_s=100.0)
    assert outcomes([fast], speed_counts=True)[CELL] is Outcome.CLEAN


@pytest.mark.parametrize(
    ("other", "slow"),
    [
        (Cell(3, 1, False, 1, 0, 0.0, 0), True),  # its trees lie within
        (Cell(7, 1, True, 1, 0, 0.0, 0), True),  # the same trees
        (Cell(16, 1, False, 1, 0, 0.0, 0), False),  # larger trees may accept more
        (Cell(7, 4, False, 1, 0, 0.0, 0), False),  # top-k 4 may give up depth for breadth
        (Cell(3, 1, False, 1, 1, 0.0, 0), False),  # another text
    ],
)
def test_fewer_accepted_tokens_than_a_cell_that_bounds_it(other: Cell, slow: bool) -> None:
    own = Measured(CELL, (request(accept_length=2.0),))
    more = Measured(other, (request(accept_length=3.0),))
    assert (outcomes([own, more])[CELL] is Outcome.SLOW) == slow
    less = Measured(other, (request(accept_length=2.05),))
    assert outcomes([own, less])[CELL] is Outcome.CLEAN
