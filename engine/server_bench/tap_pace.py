"""What a tap costs its server, measured on the server: steps that it records, rests in, and stays away from, in turns.

The server is kept busy with so many requests at once while its tap takes turns (``alternate`` in the control file) and
times every step. Prompts, caches, drafts and the machine are the same for all three kinds of steps, so a ratio of
their times is a ratio of tokens a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.server.trial import Endpoint, model_of
from engine.server_bench.control_file import ControlFile, health_of
from engine.server_bench.lot import Door, Lot, ask_lot
from engine.server_bench.plan import Plan
from engine.server_bench.rounds import Report

EVERYTHING = {
    "record": True,
    "first": None,
    "every": 1,
    "check": False,
    "only_failures": False,
    "fingerprints": False,
}
REPORTED = 2.5  # seconds after which a health file tells of all steps before
KINDS = ("recorded", "resting", "away")


@dataclass(frozen=True)
class Pacing:
    """``plan``: what is asked; its rounds are not used."""

    plan: Plan
    seconds: float = 60.0  # of each number in flight
    warm_up: float = 15.0
    alternate: int = 100  # steps of a turn


@dataclass(frozen=True)
class Level:
    """What came of one number in flight. ``ranks``: ``step_us`` of that many requests by rank."""

    concurrency: int
    seconds: float
    tokens: int
    accept_length: float | None
    ranks: dict[str, dict[str, Any]]


def levels_of(pacing: Pacing, door: Door, file: ControlFile, report: Report) -> Iterator[Level]:
    """Each number in flight as it is done.

    Raises ``ServerError``; ``ValueError`` for a tap that doesn't follow, or that saw too few steps.
    """
    chat = pacing.plan.endpoint is Endpoint.CHAT
    model = model_of(door.client()) if chat else None
    count = len(pacing.plan.concurrency)
    for number, level in enumerate(pacing.plan.concurrency):
        file.set(**EVERYTHING, alternate=0)  # what was counted before is forgotten
        report(f"warm-up, {level} in flight", number / count)
        _keep_busy(pacing, door, level, model, pacing.warm_up)
        file.set(alternate=pacing.alternate)
        report(f"{pacing.seconds:g} s, {level} in flight", (number + 0.2) / count)
        lots = _keep_busy(pacing, door, level, model, pacing.seconds)
        time.sleep(REPORTED)
        yield _level(level, lots, file)


def _keep_busy(
    pacing: Pacing, door: Door, level: int, model: str | None, seconds: float
) -> list[Lot]:
    """Lots one after the other; the next one starts with the prompt after the last one's."""
    plan, lots = pacing.plan, list[Lot]()
    until = time.monotonic() + seconds
    size = plan.requests_at(level)
    while time.monotonic() < until:
        asked = [plan.prompts[(len(lots) * size + n) % len(plan.prompts)] for n in range(size)]
        lots.append(ask_lot(door, [plan.body(p, model) for p in asked], level, plan.endpoint))
    return lots


def _level(level: int, lots: Sequence[Lot], file: ControlFile) -> Level:
    found: dict[str, dict[str, Any]] = {}
    for rank in file.ranks():
        name = rank.name.removeprefix("health.").removesuffix(".json")
        told = health_of(rank).get("step_us", {}).get(str(level), {})
        lacking = [kind for kind in KINDS if kind not in told]
        if lacking:
            raise ValueError(
                f"{rank}: expected steps of {level} requests of every kind, found none of {', '.join(lacking)} "
                "(more seconds, shorter turns, or a server that takes so many at once)"
            )
        found[name] = told
    lengths = [lot.accept_length for lot in lots if lot.accept_length is not None]
    return Level(
        level,
        sum(lot.seconds for lot in lots),
        sum(lot.tokens for lot in lots),
        sum(lengths) / len(lengths) if lengths else None,
        found,
    )
