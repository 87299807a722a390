"""All that is kept of a run, as plain JSON values; the table is made from nothing else."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import engine
from engine.server_bench.figures import figures_of
from engine.server_bench.lot import Door
from engine.server_bench.plan import Plan
from engine.server_bench.rounds import Round


@dataclass(frozen=True)
class Heading:
    """What people say of it. ``command``: with which it was made."""

    title: str = "Servers beside each other"
    note: str | None = None
    command: str = ""


def data_of(
    plan: Plan,
    doors: Sequence[Door],
    abouts: Mapping[str, Mapping[str, str]],
    rounds: Sequence[Round],
    heading: Heading,
    problem: str | None = None,
) -> dict[str, Any]:
    """``abouts``: what servers say of themselves, by name. ``problem``: why it ended before the last round."""
    names = [door.name for door in doors]
    asked = {str(level): plan.requests_at(level) for level in plan.concurrency}
    return {
        **asdict(heading),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"engine": engine.__version__, "python": platform.python_version()},
        "incomplete": len(rounds) < plan.rounds,
        "problem": problem,
        "plan": {**asdict(plan), "endpoint": plan.endpoint.value, "requests": asked},
        "servers": [
            {"name": door.name, "url": str(door.address), "about": dict(abouts.get(door.name, {}))}
            for door in doors
        ],
        "figures": figures_of(rounds, names, plan.concurrency),
        "rounds": [_round(one) for one in rounds],
    }


def _round(one: Round) -> dict[str, Any]:
    lots = [
        {
            "concurrency": level,
            "server": name,
            "seconds": lot.seconds,
            "tokens": lot.tokens,
            "tokens_per_s": lot.tokens_per_s,
            "accept_length": lot.accept_length,
        }
        for (level, name), lot in one.lots.items()
    ]
    return {"order": list(one.order), "lots": lots}
