"""All rounds, one after another: in each, every server is asked the same at every number in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.server.client import ServerError
from engine.server.ready import wait_ready
from engine.server.trial import Endpoint, model_of
from engine.server_bench.lot import Door, Lot, ask_lot
from engine.server_bench.plan import Plan, rotated

Report = Callable[[str, float], None]  # words, share that is done; raising ends it


@dataclass(frozen=True)
class Round:
    """A round that counts, with every server at every number in flight."""

    order: tuple[str, ...]  # of servers
    lots: Mapping[tuple[int, str], Lot]  # by number in flight and server


def ready(doors: Sequence[Door], patience: float, report: Report) -> None:
    """Wait until every server is. Raises ``ServerError`` after ``patience`` seconds, with a server's name first."""
    until = time.monotonic() + patience
    for door in doors:
        with _named(door):
            rest = max(0.0, until - time.monotonic())
            wait_ready(door.client(), rest, lambda words, _: report(words, 0.0))


def rounds_of(
    plan: Plan, doors: Sequence[Door], report: Report, turn: Callable[[str], None] | None = None
) -> Iterator[Round]:
    """Rounds as they are complete, without those of warm-up. Raises ``ServerError`` with a server's name first.

    ``turn``: called with a server's name before it is asked, outside the time that counts.
    """
    chat = plan.endpoint is Endpoint.CHAT
    models = {door.name: model_of(door.client()) if chat else None for door in doors}
    total = plan.warm_up + plan.rounds
    for number in range(total):
        counts = number >= plan.warm_up
        words = (
            f"round {number - plan.warm_up + 1} of {plan.rounds}"
            if counts
            else f"warm-up {number + 1} of {plan.warm_up}"
        )
        report(words, number / total)
        order = rotated(number, doors)
        lots = {
            (level, door.name): _lot(plan, door, level, models[door.name], turn)
            for level in plan.concurrency
            for door in order
        }
        if counts:
            yield Round(tuple(door.name for door in order), lots)


def _lot(
    plan: Plan, door: Door, level: int, model: str | None, turn: Callable[[str], None] | None
) -> Lot:
    bodies = [plan.body(prompt, model) for prompt in plan.asked_at(level)]
    if turn is not None:
        turn(door.name)
    with _named(door):
        return ask_lot(door, bodies, level, plan.endpoint)


@contextmanager
def _named(door: Door) -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        raise ServerError(f"{door.name}: {error}", error.status) from error
