"""What a tap costs its server, measured on the server: steps that it records, rests in, and stays away from, in turns.

The server is kept busy with so many requests at once while its tap takes turns (``alternate`` in the control file) and
times every step. Prompts, caches, drafts and the machine are the same for all three kinds of steps, so a ratio of
their times is a ratio of tokens a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
COUNTED = ("written", "dropped", "unmatched", "not_taken", "not_assembled")
FEW, SHARE = 10, 0.01  # steps that may be lost: where settings change within one, and beyond that


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
        before = {rank: health_of(rank) for rank in file.ranks()}
        report(f"{pacing.seconds:g} s, {level} in flight", (number + 0.2) / count)
        lots = _keep_busy(pacing, door, level, model, pacing.seconds)
        time.sleep(REPORTED)
        yield _level(level, lots, file, before)


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


def _level(level: int, lots: Sequence[Lot], file: ControlFile, before: Mapping[Path, Any]) -> Level:
    found: dict[str, dict[str, Any]] = {}
    for rank in file.ranks():
        health = health_of(rank)
        _recorded(rank, before.get(rank, {}), health)
        name = rank.name.removeprefix("health.").removesuffix(".json")
        found[name] = _paces(rank, health.get("step_us"), level)
    if not found:
        raise ValueError(f"{file.folder}: expected a tap that still records, found none")
    lengths = [lot.accept_length for lot in lots if lot.accept_length is not None]
    return Level(
        level,
        sum(lot.seconds for lot in lots),
        sum(lot.tokens for lot in lots),
        sum(lengths) / len(lengths) if lengths else None,
        found,
    )


def _recorded(rank: Path, before: Any, health: Any) -> None:
    """Raises ``ValueError`` where steps that were to be recorded were not: their times tell nothing."""
    then, now = _counts(before), _counts(health)
    grown = {name: now[name] - then.get(name, 0) for name in now}
    written = grown.pop("written", 0)
    lost = {name: count for name, count in grown.items() if count > 0}
    if written <= 0 or sum(lost.values()) > max(FEW, written * SHARE):
        words = ", ".join(f"{count} {name}" for name, count in lost.items()) or "nothing lost"
        raise ValueError(
            f"{rank}: expected steps to be recorded, found {written} written, {words} "
            f"(last error: {str(health.get('last_error'))[:200]})"
        )


def _counts(health: Any) -> dict[str, int]:
    steps = health.get("steps") if isinstance(health, dict) else None
    told = steps if isinstance(steps, dict) else {}
    found = {name: told.get(name) for name in COUNTED}
    found["hook_errors"] = health.get("hook_errors") if isinstance(health, dict) else None
    return {name: count for name, count in found.items() if type(count) is int}


def _paces(rank: Path, told: Any, level: int) -> dict[str, Any]:
    """The entry of so many requests. Raises ``ValueError`` for anything else than its figures."""
    own = told.get(str(level), {}) if isinstance(told, dict) else None
    place = f"{rank}: step_us of {level} requests"
    if not isinstance(own, dict):
        raise ValueError(f"{place}: expected an object, found {type(own).__name__}")
    lacking = [kind for kind in KINDS if kind not in own]
    if lacking:
        raise ValueError(
            f"{rank}: expected steps of {level} requests of every kind, found none of {', '.join(lacking)} "
            "(more seconds, shorter turns, or a server that takes so many at once)"
        )
    for kind in KINDS:
        _figures(f"{place}: {kind}", own[kind], ("us", "mean_us", "steps"))
    for ratio in ("ratio", "mean_ratio"):
        _figures(f"{place}: {ratio}", own.get(ratio), KINDS[:2])
    return own


def _figures(place: str, found: Any, names: Sequence[str]) -> None:
    for name in names:
        value = found.get(name) if isinstance(found, dict) else None
        number = value if isinstance(value, int | float) else 0
        if isinstance(value, bool) or not math.isfinite(number) or number <= 0:
            raise ValueError(f"{place}.{name}: expected a number above 0, found {value!r:.60}")
