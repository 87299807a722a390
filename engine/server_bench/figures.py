"""From rounds to figures: medians and quartiles over rounds, each ratio taken within its round."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from engine.server_bench.lot import Lot
from engine.server_bench.rounds import Round


def figures_of(
    rounds: Sequence[Round], names: Sequence[str], concurrency: Sequence[int]
) -> list[dict[str, Any]]:
    """A row for each number in flight and server; none without rounds.

    ``ratio``: of tokens/s to the first server's. ``step_ms``: of one request's decode steps, everything else of an
    answer shared out among them, None where a server does not tell its acceptance; ``step_ratio``: to the first
    server's, also where drafts are accepted otherwise. ``equal``: answers of ``compared`` that are the first server's;
    ``repeated``: answers of ``asked_again`` that are the server's own of the first round.
    """
    return [
        _row(rounds, names[0], name, level) for level in concurrency for name in names if rounds
    ]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile; of one value, that value."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def step_ms(lot: Lot, level: int) -> float | None:
    """Milliseconds of a step with ``level`` requests in flight."""
    if lot.accept_length is None or not lot.tokens:
        return None
    return 1e3 * lot.seconds * level * lot.accept_length / lot.tokens


def _row(rounds: Sequence[Round], first: str, name: str, level: int) -> dict[str, Any]:
    lots = [one.lots[level, name] for one in rounds]
    firsts = [one.lots[level, first] for one in rounds]
    speeds = [lot.tokens_per_s for lot in lots]
    ratios = [
        lot.tokens_per_s / other.tokens_per_s for lot, other in zip(lots, firsts, strict=True)
    ]
    steps = [step_ms(lot, level) for lot in lots]
    of_first = [step_ms(lot, level) for lot in firsts]
    pairs = [
        (a, b) for a, b in zip(steps, of_first, strict=True) if a is not None and b is not None
    ]
    step_ratios = [a / b for a, b in pairs]
    told = [step for step in steps if step is not None]
    lengths = [lot.accept_length for lot in lots if lot.accept_length is not None]
    again = lots[1:]
    return {
        "concurrency": level,
        "server": name,
        "rounds": len(rounds),
        "tokens_per_s": median(speeds),
        "tokens_per_s_quartiles": list(spread(speeds)),
        "ratio": median(ratios),
        "ratio_quartiles": list(spread(ratios)),
        "step_ms": median(told) if told else None,
        "step_ratio": median(step_ratios) if step_ratios else None,
        "step_ratio_quartiles": list(spread(step_ratios)) if step_ratios else None,
        "tokens": sum(lot.tokens for lot in lots),
        "accept_length": sum(lengths) / len(lengths) if lengths else None,
        "equal": sum(map(_equal, lots, firsts)),
        "compared": sum(len(lot.texts) for lot in lots),
        "repeated": sum(_equal(lot, lots[0]) for lot in again),
        "asked_again": sum(len(lot.texts) for lot in again),
    }


def _equal(lot: Lot, other: Lot) -> int:
    return sum(mine == theirs for mine, theirs in zip(lot.texts, other.texts, strict=True))
