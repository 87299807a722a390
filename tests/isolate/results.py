"""Results that no engine measured: a cell with the outcome that a test wants."""

from __future__ import annotations

from engine.isolate.cell import Cell
from engine.isolate.measured import Compared, Measured
from engine.isolate.outcome import Outcome

PLAIN = (1, 2, 3, 4, 5)


def request(**changes) -> Compared:
    values = {
        "prompt": "p",
        "text": "abcde",
        "plain_text": "abcde",
        "tokens": PLAIN,
        "plain_tokens": PLAIN,
        "first_difference": None,
        "repeats": True,
        "accept_length": 3.0,
    }
    return Compared(**{**values, **changes})


WRONG = request(
    text="abXde", tokens=(1, 2, 9, 4, 5), first_difference=2, margin=3.5, near_tie=False
)
OF = {
    Outcome.CLEAN: request(),
    Outcome.WRONG: WRONG,
    Outcome.NEAR_TIE: request(first_difference=2, margin=0.01, near_tie=True),
    Outcome.NONDETERMINISTIC: request(first_difference=4, margin=2.0, plain_parts=3),
    Outcome.SLOW: request(accept_length=1.0),
}


def measured(cell: Cell, outcome: Outcome, **changes) -> Measured:
    if outcome is Outcome.FAILED:
        return Measured(cell, error="RuntimeError: out of bounds", **changes)
    return Measured(cell, (OF[outcome],) * cell.batch, 1.0, **changes)
