"""Prompts asked together at SGLang's ``/generate``: texts, token ids, seconds, how clearly each token was chosen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.server.client import Client, ServerError
from engine.server.trial import Answer, generated

TICK = 0.05  # seconds
TOP = 2  # log-probabilities a token
SHORTEST = 0.05  # seconds of a batch whose speed means something

NewClient = Callable[[Callable[[], None]], Client]  # from its tick


@dataclass(frozen=True)
class Question:
    """What a batch is asked."""

    prompts: tuple[str, ...]
    max_new_tokens: int
    temperature: float
    seed: int
    rid: str  # of the batch; a request's own has ".0", ".1", … behind it
    margins: bool = False  # DFLASH on 0.5.12 refuses such requests

    def body(self, number: int) -> dict[str, Any]:
        """JSON of one request."""
        sampling: dict[str, Any] = {
            "temperature": self.temperature,
            "max_new_tokens": self.max_new_tokens,
        }
        if self.temperature:
            sampling["sampling_seed"] = self.seed
        body = {
            "text": self.prompts[number],
            "rid": f"{self.rid}.{number}",
            "sampling_params": sampling,
        }
        return body | ({"return_logprob": True, "top_logprobs_num": TOP} if self.margins else {})


@dataclass(frozen=True)
class Said:
    """One answer. ``margins``: of each token over the best other one, in log-probabilities; None: not told."""

    answer: Answer
    ids: tuple[int, ...]
    margins: tuple[float | None, ...]


@dataclass(frozen=True)
class Together:
    """A batch: its answers in the order of the prompts. ``seconds``: until the last one was there."""

    said: tuple[Said, ...]
    seconds: float

    @property
    def tokens_per_s(self) -> float | None:
        """Of all requests together; the wait for first tokens counts. None where it was over too soon to tell."""
        tokens = sum(len(one.ids) for one in self.said)
        return tokens / self.seconds if tokens and self.seconds >= SHORTEST else None


def ask_together(question: Question, client: NewClient, tick: Callable[[], None]) -> Together:
    """Ask every prompt at once. Raises ``ServerError``, and what ``tick`` raises; no call goes on then."""
    over = threading.Event()
    asked = [_Asked(question, number, client, over) for number in range(len(question.prompts))]
    started = time.perf_counter()
    for one in asked:
        one.start()
    try:
        while waiting := [one for one in asked if one.is_alive()]:
            tick()
            waiting[0].join(TICK)
            if any(one.error for one in asked):
                break
    finally:
        over.set()
        for one in asked:
            one.join()
    for one in asked:
        if one.error is not None and not isinstance(one.error, _GivenUp):
            raise one.error
    return Together(
        tuple(one.said for one in asked if one.said is not None),
        max(one.ended for one in asked) - started,
    )


def faster(first: Together, second: Together) -> float | None:
    """Tokens a second of the one that less came in the way of."""
    known = [rate for rate in (first.tokens_per_s, second.tokens_per_s) if rate is not None]
    return max(known) if len(known) == 2 else None


class _GivenUp(Exception):
    """Nobody waits for this answer any more."""


class _Asked(threading.Thread):
    def __init__(
        self, question: Question, number: int, client: NewClient, over: threading.Event
    ) -> None:
        super().__init__(name="question", daemon=True)
        self._question, self._number, self._over = question, number, over
        self._client = client(self._tick)
        self.said: Said | None = None
        self.error: Exception | None = None
        self.ended = 0.0

    def run(self) -> None:
        """Never raises."""
        started = time.perf_counter()
        try:
            found = self._client.post("/generate", self._question.body(self._number))
            self.ended = time.perf_counter()
            self.said = _said(self._client, found, self.ended - started)
        except Exception as error:
            self.error = error

    def _tick(self) -> None:
        if self._over.is_set():
            raise _GivenUp


def _said(client: Client, found: Any, seconds: float) -> Said:
    answer = generated(client, found, seconds)
    if answer.ids is None:
        where = f"{client.address}/generate"
        raise ServerError(f"{where}: expected output_ids, a list of token ids, found none", 200)
    return Said(answer, answer.ids, margins_of(found.get("meta_info"), answer.ids))


def margins_of(meta: Any, ids: Sequence[int]) -> tuple[float | None, ...]:
    """From ``output_token_logprobs`` and ``output_top_logprobs``: a triple (log-probability, id, text) a token, and a
    list of such triples a token."""
    own = meta.get("output_token_logprobs") if isinstance(meta, dict) else None
    top = meta.get("output_top_logprobs") if isinstance(meta, dict) else None
    if not isinstance(own, list) or not isinstance(top, list):
        return ()
    pairs = list(zip(own, top, strict=False))[: len(ids)]
    return tuple(_margin(mine, others) for mine, others in pairs)


def _margin(mine: Any, others: Any) -> float | None:
    best = _pair(mine)
    rest = [_pair(entry) for entry in others] if isinstance(others, list) else []
    other = [
        pair[0] for pair in rest if pair is not None and best is not None and pair[1] != best[1]
    ]
    return best[0] - max(other) if best is not None and other else None


def _pair(entry: Any) -> tuple[float, int] | None:
    usable = isinstance(entry, list) and len(entry) >= 2 and type(entry[1]) is int
    return (
        (float(entry[0]), entry[1])
        if usable and isinstance(entry[0], float | int) and not isinstance(entry[0], bool)
        else None
    )
