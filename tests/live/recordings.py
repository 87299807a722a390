"""Ranks that record step by step into a directory; a clock that a test moves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.live.follower import Follower
from engine.step import VerifyStep
from engine.trace import TraceHeader, TraceWriter
from tests.checks.build import batch, spoil

FULL = batch(full=True)
PREDICT = ("outcome.target_predict.19", 8)  # a row that no accepted path reaches


def record(number: int, rank: int = 0, world: int = 1, *changes: tuple[str, Any]) -> VerifyStep:
    """A clean step of requests of its own, and what a test changes in it."""
    step = spoil(FULL, ("step", number), ("rank", rank), ("world_size", world), *changes)
    requests = tuple(replace(r, rid=f"{r.rid}-{number}") for r in step.requests)
    return replace(step, requests=requests)


class Clock:
    """Seconds that pass when a test says so; also the wall's."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def follower(folder: Path | str, clock: Clock) -> Follower:
    """Files in the folder are as old as the test's clock says: not old at all."""
    return Follower(str(folder), clock=clock, wall=lambda: 0.0)


class Ranks:
    """One writer a rank."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder, self.world = folder, world
        self.writers = [
            TraceWriter(folder / f"rank{rank}.ddtree.arrow", TraceHeader("test", created=str(rank)))
            for rank in range(world)
        ]

    def write(self, number: int, only: Any = None, **changes: tuple[str, Any]) -> None:
        """A step on every rank; ``rank7=(path, value)`` changes that rank's."""
        for rank in range(self.world) if only is None else only:
            changed = changes.get(f"rank{rank}")
            self.writers[rank].write(
                record(number, rank, self.world, *([changed] if changed else []))
            )

    def health(self, rank: int, **facts: Any) -> None:
        (self.folder / f"health-{rank}.json").write_text(json.dumps(facts))

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
