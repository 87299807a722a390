"""Prompts asked twice each at temperature 0: are both answers the same, how fast, how well speculated.

A server that batches or overlaps may part at a near-tie without a fault; that answers differ is a fact, not a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from engine.server.client import Client, ServerError
from engine.server.facts import Speculation, read_metrics, read_settings, speculation_of
from engine.server.garbling import Signal, signals_of

PROMPTS = ("Write a short poem about the ocean.", "Write a Python quicksort with comments.")
TIMES = 2
MAX_IDS = 1 << 17

Report = Callable[
    [str, float], None
]  # words, share of the calls that is done; raising ends the trial


class Endpoint(StrEnum):
    """How prompts are asked."""

    CHAT = "chat"  # /v1/chat/completions: with the model's chat template
    GENERATE = "generate"  # SGLang's /generate: the words as they are, with token ids and meta_info


@dataclass(frozen=True)
class Answer:
    """One answer. None: not told."""

    text: str
    seconds: float
    tokens: int | None
    ids: tuple[int, ...] | None
    finish: str | None
    speculation: Speculation | None

    @property
    def tokens_a_second(self) -> float | None:
        """The wait for the first token counts."""
        return self.tokens / self.seconds if self.tokens and self.seconds > 0 else None


@dataclass(frozen=True)
class Asked:
    """One prompt. Differences are indices into both answers; None: there is none, or tokens are not told."""

    prompt: str
    answers: tuple[Answer, ...]
    first_character: int | None
    first_token: int | None
    signals: tuple[tuple[Signal, ...], ...]  # of each answer

    @property
    def same(self) -> bool:
        """Whether both answers are one text."""
        return self.first_character is None and self.first_token is None


@dataclass(frozen=True)
class Trial:
    """What came of a server."""

    address: str
    model: str | None
    waited: float  # seconds until it was ready
    asked: tuple[Asked, ...]
    metrics: tuple[tuple[str, float], ...]
    settings: tuple[tuple[str, str], ...]

    @property
    def same(self) -> bool:
        """Whether every prompt was answered the same twice."""
        return all(asked.same for asked in self.asked)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "metrics": dict(self.metrics), "settings": dict(self.settings)}


def run_trial(
    client: Client,
    prompts: Sequence[str],
    *,
    endpoint: Endpoint = Endpoint.CHAT,
    max_tokens: int = 128,
    waited: float = 0.0,
    report: Report = lambda words, share: None,
) -> Trial:
    """Ask a server that is ready. Raises ``ServerError`` for an answer that is none."""
    model = model_of(client)
    total, asked = TIMES * len(prompts), []
    for number, prompt in enumerate(prompts):
        answers = []
        for again in range(TIMES):
            done = number * TIMES + again
            report(f"prompt {number + 1}, {'again' if again else 'first time'}", done / total)
            answers.append(ask(client, prompt, endpoint, max_tokens, model))
        asked.append(compared(prompt, answers))
    return Trial(
        str(client.address),
        model,
        waited,
        tuple(asked),
        read_metrics(client),
        read_settings(client),
    )


def ask(
    client: Client, prompt: str, endpoint: Endpoint, max_tokens: int, model: str | None
) -> Answer:
    """One answer at temperature 0. Raises ``ServerError``."""
    started = time.perf_counter()
    if endpoint is Endpoint.GENERATE:
        sampling = {"temperature": 0, "max_new_tokens": max_tokens}
        found = client.post("/generate", {"text": prompt, "sampling_params": sampling})
        return generated(client, found, time.perf_counter() - started)
    body = {
        "model": model or "default",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    found = client.post("/v1/chat/completions", body)
    return chatted(client, found, time.perf_counter() - started)


def compared(prompt: str, answers: Sequence[Answer]) -> Asked:
    """Both answers side by side."""
    first, second = answers[:2]
    ids = (
        None if first.ids is None or second.ids is None else first_difference(first.ids, second.ids)
    )
    signals = tuple(signals_of(answer.text) for answer in answers)
    return Asked(prompt, tuple(answers), first_difference(first.text, second.text), ids, signals)


def first_difference(left: Sequence[Any], right: Sequence[Any]) -> int | None:
    """Index of the first entry that differs, or at which one ends; None where they are equal."""
    for place, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        if mine != theirs:
            return place
    return min(len(left), len(right)) if len(left) != len(right) else None


def model_of(client: Client) -> str | None:
    """The first model that the server names; None where it names none."""
    try:
        found = client.parsed("/v1/models", client.get("/v1/models", timeout=10))
    except ServerError:
        return None
    data = found.get("data") if isinstance(found, dict) else None
    first = data[0] if isinstance(data, list) and data else None
    name = first.get("id") if isinstance(first, dict) else None
    return name if isinstance(name, str) else None


def generated(client: Client, found: Any, seconds: float) -> Answer:
    """What ``/generate`` answered. Raises ``ServerError`` for an answer without text."""
    text = found.get("text") if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise ServerError(
            f"{client.address}/generate: expected an object with text, found none", 200
        )
    meta = found.get("meta_info")
    meta = meta if isinstance(meta, dict) else {}
    ids = _ids(found.get("output_ids", meta.get("output_ids")))
    tokens = _tokens(meta, len(ids) if ids is not None else None)
    finish = meta.get("finish_reason")
    finish = finish.get("type") if isinstance(finish, dict) else finish
    return Answer(text, seconds, tokens, ids, _word(finish), speculation_of(meta, tokens))


def chatted(client: Client, found: Any, seconds: float) -> Answer:
    """What ``/v1/chat/completions`` answered. Raises ``ServerError`` for an answer without text."""
    choices = found.get("choices") if isinstance(found, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    text = message.get("content") if isinstance(message, dict) else None
    if not isinstance(text, str) or not isinstance(choice, dict):
        where = f"{client.address}/v1/chat/completions"
        raise ServerError(f"{where}: expected choices[0].message.content, found none", 200)
    usage = found.get("usage")
    tokens = _tokens(usage if isinstance(usage, dict) else {}, None)
    meta = choice.get("meta_info") or found.get("meta_info")
    finish = _word(choice.get("finish_reason"))
    return Answer(text, seconds, tokens, None, finish, speculation_of(meta, tokens))


def _tokens(facts: dict[str, Any], default: int | None) -> int | None:
    count = facts.get("completion_tokens")
    return count if type(count) is int and 0 <= count <= MAX_IDS else default


def _ids(value: Any) -> tuple[int, ...] | None:
    usable = isinstance(value, list) and len(value) <= MAX_IDS
    return tuple(value) if usable and all(type(token) is int for token in value) else None


def _word(value: Any) -> str | None:
    return value[:100] if isinstance(value, str) else None
