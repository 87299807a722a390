"""Outcome of a cell from its behaviour alone: texts, margins, repetitions, acceptance, speed. Findings are not asked.

A text that plain decoding would not have written is wrong, however fluent. Three things look like that and are not:
plain decoding that differs from itself, a tie that rounding decides, and a sampled text of a server, which need not
equal another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from engine.isolate.cell import Cell, Factor
from engine.isolate.measured import Compared, Measured

LESS = 0.95  # acceptance below this share of a cell that must not accept more is lower
SLOWER = (
    0.8  # of plain decoding's speed; what lies above may be chance, since each is timed a few times
)
USELESS = 1.02  # tokens a step: nothing that was drafted is accepted


class Outcome(StrEnum):
    """What a cell is."""

    CLEAN = "clean"
    NEAR_TIE = "near-tie"  # differs from plain decoding where rounding decides
    SAMPLED = "sampled"  # differs from plain decoding, as it may: neither right nor wrong
    NONDETERMINISTIC = "non-deterministic"  # plain decoding differs from itself there
    SLOW = "lossless but slow"
    WRONG = "wrong"
    FAILED = "failed"


RIGHT = (Outcome.CLEAN, Outcome.NEAR_TIE, Outcome.SLOW)
BROKEN = (Outcome.WRONG, Outcome.FAILED)
_WORST_LAST = (
    *(Outcome.CLEAN, Outcome.NEAR_TIE, Outcome.SAMPLED),
    *(Outcome.NONDETERMINISTIC, Outcome.WRONG),
)


def outcomes(results: Iterable[Measured], *, speed_counts: bool = False) -> dict[Cell, Outcome]:
    """Of each cell. ``speed_counts``: clearly slower than plain decoding is slow, as on a server."""
    by_cell = {measured.cell: measured for measured in results}
    found = {
        cell: max(own, key=_WORST_LAST.index) if own else Outcome.FAILED
        for cell, own in request_outcomes(by_cell.values()).items()
    }
    for cell, measured in by_cell.items():
        if found[cell] in (Outcome.CLEAN, Outcome.NEAR_TIE) and (
            _accepts_less(measured, by_cell, found) or (speed_counts and _is_slower(measured))
        ):
            found[cell] = Outcome.SLOW
    return found


def request_outcomes(results: Iterable[Measured]) -> dict[Cell, tuple[Outcome, ...]]:
    """Of each request of each cell, by its text; none of a cell that failed."""
    results = list(results)
    unstable = any(_plain_is_unstable(r) for m in results for r in m.requests)
    return {
        m.cell: () if m.error is not None else tuple(_of_request(r, unstable) for r in m.requests)
        for m in results
    }


def _of_request(request: Compared, unstable: bool) -> Outcome:
    parts, plain_parts = request.first_difference, request.plain_parts
    if parts is None:
        return Outcome.CLEAN
    if request.sampled:
        return Outcome.SAMPLED
    if request.near_tie:
        return Outcome.NEAR_TIE
    if unstable or (plain_parts is not None and parts >= plain_parts):
        return Outcome.NONDETERMINISTIC
    return Outcome.WRONG


def _plain_is_unstable(request: Compared) -> bool:
    known = request.plain_parts is not None and not request.sampled
    return known and not request.plain_near_tie


def _is_slower(measured: Measured) -> bool:
    own, plain = measured.tokens_per_s, measured.plain_tokens_per_s
    return own is not None and plain is not None and own < SLOWER * plain


def _accepts_less(
    measured: Measured, by_cell: Mapping[Cell, Measured], found: Mapping[Cell, Outcome]
) -> bool:
    """Fewer tokens a step than a cell whose trees lie within this one's, or than none at all."""
    own = measured.accept_length
    if own is None:
        return False
    if own < USELESS:
        return True
    others = (
        other.accept_length
        for cell, other in by_cell.items()
        if found[cell] is Outcome.CLEAN and _bounds(cell, measured.cell)
    )
    return any(other is not None and own < LESS * other for other in others)


def _bounds(smaller: Cell, cell: Cell) -> bool:
    """Whether ``smaller`` cannot accept more than ``cell``: the same trees launched otherwise, or contained ones."""
    differs = smaller.differs_in(cell)
    if differs == (Factor.GRAPHS,):
        return True
    if differs == (Factor.BUDGET,):
        return smaller.budget < cell.budget
    return False
