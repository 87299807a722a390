"""The requests of one round at one server, so many in flight: as one ends, the next one is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.server.client import Address, Client, ServerError
from engine.server.trial import Answer, Endpoint, chatted, generated

PATHS = {Endpoint.GENERATE: "/generate", Endpoint.CHAT: "/v1/chat/completions"}
TICK = 0.05  # seconds


@dataclass(frozen=True)
class Door:
    """How a server is reached. ``timeout``: seconds of one answer."""

    name: str
    address: Address
    timeout: float = 120.0
    key: str | None = None

    def client(self, over: threading.Event | None = None) -> Client:
        """A client whose calls are given up when it is over."""

        def tick() -> None:
            if over is not None and over.is_set():
                raise _GivenUp

        return Client(self.address, timeout=self.timeout, tick=tick, key=self.key)


@dataclass(frozen=True)
class Lot:
    """What came of it. ``seconds``: from the first request until the last answer; ``texts``: in the order asked."""

    seconds: float
    tokens: int
    accept_length: float | None  # mean over requests of tokens a verify step; None: not told
    texts: tuple[str, ...]

    @property
    def tokens_per_s(self) -> float:
        """Of all requests together; the wait for first tokens counts."""
        return self.tokens / self.seconds


def ask_lot(
    door: Door, bodies: Sequence[dict[str, Any]], in_flight: int, endpoint: Endpoint
) -> Lot:
    """Ask and wait for all. Raises ``ServerError`` for the first that fails; no call goes on then."""
    work = _Work(door, bodies, endpoint)
    threads = [
        threading.Thread(target=work.run, name="bench request", daemon=True)
        for _ in range(min(in_flight, len(bodies)))
    ]
    started = time.perf_counter()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(TICK)
    finally:
        work.over.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if work.error is not None:
        raise work.error
    return _lot(door, endpoint, [work.answers[n] for n in range(len(bodies))], work.ended - started)


def _lot(door: Door, endpoint: Endpoint, answers: Sequence[Answer], seconds: float) -> Lot:
    tokens = [answer.tokens for answer in answers if answer.tokens is not None]
    if len(tokens) < len(answers) or not sum(tokens):
        where = f"{door.address}{PATHS[endpoint]}"
        raise ServerError(f"{where}: expected completion_tokens of every answer, found none", 200)
    told = [answer.speculation for answer in answers if answer.speculation is not None]
    lengths = [one.accept_length for one in told if one.accept_length is not None]
    mean = sum(lengths) / len(lengths) if lengths else None
    return Lot(seconds, sum(tokens), mean, tuple(answer.text for answer in answers))


class _GivenUp(Exception):
    """Another request failed, or nobody waits any more."""


class _Work:
    """Requests that threads take in turn."""

    def __init__(self, door: Door, bodies: Sequence[dict[str, Any]], endpoint: Endpoint) -> None:
        self._door, self._bodies, self._endpoint = door, bodies, endpoint
        self._lock, self._next = threading.Lock(), 0
        self.over = threading.Event()
        self.answers: dict[int, Answer] = {}
        self.error: Exception | None = None
        self.ended = 0.0

    def run(self) -> None:
        """Body of a thread; never raises."""
        client = self._door.client(self.over)
        while (number := self._taken()) is not None:
            try:
                answer = self._asked(client, number)
            except Exception as error:
                with self._lock:
                    if self.error is None and not isinstance(error, _GivenUp):
                        self.error = error
                self.over.set()
                return
            with self._lock:
                self.answers[number] = answer
                self.ended = time.perf_counter()

    def _taken(self) -> int | None:
        with self._lock:
            if self.over.is_set() or self._next == len(self._bodies):
                return None
            self._next += 1
            return self._next - 1

    def _asked(self, client: Client, number: int) -> Answer:
        started = time.perf_counter()
        found = client.post(PATHS[self._endpoint], self._bodies[number])
        read = generated if self._endpoint is Endpoint.GENERATE else chatted
        return read(client, found, time.perf_counter() - started)
