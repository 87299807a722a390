"""A run as Markdown, from its JSON alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HEAD = (
    "| in flight | server | tokens/s | 25–75 % | × first | 25–75 % | tokens a step | ms a step | × first | 25–75 % "
    "| tokens | first's text | own text again |"
)
RULE = "| --: | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |"
TOLD = (
    "version",
    "model_path",
    "dtype",
    "tp_size",
    "attention_backend",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_draft_tokens",
)
ENOUGH = 5  # rounds


def lines(data: dict[str, Any]) -> Iterator[str]:
    """One line after the other."""
    yield f"# {plain(data['title'])}"
    yield ""
    if data["note"]:
        yield from (plain(data["note"]), "")
    yield f"{data['date']}, engine {data['versions']['engine']}. {_how(data)}"
    yield ""
    if data["incomplete"]:
        done = len(data["rounds"])
        why = f": {plain(data['problem'])}" if data["problem"] else ""
        yield f"**Incomplete**, {done} of {data['plan']['rounds']} rounds{why}."
        yield ""
    yield from (HEAD, RULE, *(_row(row) for row in data["figures"]))
    yield ""
    first = plain(data["servers"][0]["name"])
    yield (
        f"Medians over rounds, with quartiles. “× first”: tokens/s over {first}'s of the same round; a difference from "
        "1 that is not larger than the distance of its quartiles may be noise. “ms a step”: time of an answer over its "
        "decode steps, which compares servers that accept different drafts. “first's text”: answers that are "
        f"{first}'s word for word; “own text again”: those that are the server's own of the first round."
    )
    if len(data["rounds"]) < ENOUGH:
        yield f"Fewer than {ENOUGH} rounds tell little of noise."
    yield ""
    yield from (server_line(server) for server in data["servers"])
    if data["command"]:
        yield from ("", f"    {plain(data['command'])}")


def _how(data: dict[str, Any]) -> str:
    plan = data["plan"]
    asked = ", ".join(f"{count} at {level}" for level, count in plan["requests"].items())
    end = "past any end of text" if plan["ignore_eos"] else "or fewer"
    chat = "with the chat template" if plan["endpoint"] == "chat" else "without a chat template"
    return (
        f"{plan['rounds']} rounds after {plan['warm_up']} of warm-up, each server first in turn; temperature 0, "
        f"{plan['max_new_tokens']} new tokens {end}, {chat}; requests a round: {asked} in flight, "
        f"from {len(plan['prompts'])} prompts."
    )


def _row(row: dict[str, Any]) -> str:
    length = row["accept_length"]
    again = f"{row['repeated']}/{row['asked_again']}" if row["asked_again"] else "–"
    cells = [
        str(row["concurrency"]),
        plain(row["server"]),
        f"{row['tokens_per_s']:.1f}",
        _range(row["tokens_per_s_quartiles"], ".1f"),
        f"{row['ratio']:.3f}",
        _range(row["ratio_quartiles"], ".3f"),
        _number(length, ".2f"),
        _number(row["step_ms"], ".3f"),
        _number(row["step_ratio"], ".3f"),
        "–" if row["step_ratio"] is None else _range(row["step_ratio_quartiles"], ".3f"),
        str(row["tokens"]),
        f"{row['equal']}/{row['compared']}",
        again,
    ]
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def _range(pair: list[float], form: str) -> str:
    low, high = pair
    return f"{low:{form}}–{high:{form}}"


def server_line(server: dict[str, Any]) -> str:
    """What a server says of itself, as an item of a list."""
    about = server["about"]
    told = ", ".join(f"{name} {plain(about[name])}" for name in TOLD if name in about)
    return f"- {plain(server['name'])} ({plain(server['url'])}): {told or 'says nothing of itself'}"


def plain(text: str) -> str:
    """On one line, and nothing that a terminal or a table obeys."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return shown.replace("|", "\\|")
