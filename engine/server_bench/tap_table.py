"""What a tap costs, as JSON and as Markdown made from that alone."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import engine
from engine.server_bench.data import Heading
from engine.server_bench.lot import Door
from engine.server_bench.table import plain, server_line
from engine.server_bench.tap_pace import Level, Pacing

HEAD = (
    "| in flight | rank | tokens/s | tokens a step | steps of a kind | without hooks, ms | resting × | recorded × "
    "| resting ×, mean | recorded ×, mean |"
)
RULE = "| --: | --- | --: | --: | --: | --: | --: | --: | --: | --: |"


def data_of(
    pacing: Pacing,
    door: Door,
    about: Mapping[str, str],
    levels: Sequence[Level],
    heading: Heading,
    problem: str | None = None,
) -> dict[str, Any]:
    """Plain JSON values. ``problem``: why it ended before the last number in flight."""
    plan = pacing.plan
    return {
        **asdict(heading),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"engine": engine.__version__, "python": platform.python_version()},
        "problem": problem,
        "seconds": pacing.seconds,
        "warm_up": pacing.warm_up,
        "alternate": pacing.alternate,
        "max_new_tokens": plan.max_new_tokens,
        "prompts": len(plan.prompts),
        "endpoint": plan.endpoint.value,
        "server": {"name": door.name, "url": str(door.address), "about": dict(about)},
        "levels": [asdict(level) for level in levels],
    }


def lines(data: dict[str, Any]) -> Iterator[str]:
    """Markdown, one line after the other."""
    yield f"# {plain(data['title'])}"
    yield ""
    if data["note"]:
        yield from (plain(data["note"]), "")
    yield (
        f"{data['date']}, engine {data['versions']['engine']}. For {data['seconds']:g} s each the tap records "
        f"{data['alternate']} steps, rests for as many with its hooks in place, and stays away for as many, again and "
        f"again; temperature 0, {data['max_new_tokens']} new tokens, {data['prompts']} prompts."
    )
    yield ""
    if data["problem"]:
        yield from (f"**Incomplete**: {plain(data['problem'])}", "")
    yield from (HEAD, RULE)
    for level in data["levels"]:
        yield from (_row(level, name, rank) for name, rank in level["ranks"].items())
    yield ""
    yield (
        "× is the time of a step to that without hooks, of medians, then of means; all kinds decode the same, so "
        "tokens a second fall by as much. Tokens/s are over all three."
    )
    yield ""
    yield server_line(data["server"])
    if data["command"]:
        yield from ("", f"    {plain(data['command'])}")


def _row(level: dict[str, Any], name: str, rank: dict[str, Any]) -> str:
    length, counts = (
        level["accept_length"],
        [rank[k]["steps"] for k in ("recorded", "resting", "away")],
    )
    cells = [
        str(level["concurrency"]),
        plain(name),
        f"{level['tokens'] / level['seconds']:.0f}",
        "–" if length is None else f"{length:.2f}",
        str(min(counts)),
        f"{rank['away']['us'] / 1e3:.3f}",
        *(f"{rank['ratio'][kind]:.3f}" for kind in ("resting", "recorded")),
        *(f"{rank['mean_ratio'][kind]:.3f}" for kind in ("resting", "recorded")),
    ]
    return f"| {' | '.join(cells)} |"
