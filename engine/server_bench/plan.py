"""What is asked of every server: the same requests in the same order, and in each round another server first.

The requests of a round are those of every other round, so that a ratio's spread over rounds is noise and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.server.trial import Endpoint
from engine.server_bench.prompts import PROMPTS

Item = TypeVar("Item")


@dataclass(frozen=True)
class Plan:
    """``requests``: of a round and a number in flight; None: at least four, and two for each in flight."""

    concurrency: tuple[int, ...] = (1, 8)
    rounds: int = 7
    warm_up: int = 2  # rounds that do not count
    max_new_tokens: int = 128
    prompts: tuple[str, ...] = PROMPTS
    requests: int | None = None
    ignore_eos: bool = True
    endpoint: Endpoint = Endpoint.GENERATE

    def __post_init__(self) -> None:
        if not self.prompts or not self.concurrency or self.rounds < 1:
            raise ValueError("expected at least a prompt, a number in flight and a round")
        most = max(self.concurrency)
        if self.requests is not None and self.requests < most:
            raise ValueError(f"requests: expected at least {most}, as many as are in flight")

    def requests_at(self, concurrency: int) -> int:
        """Of one round."""
        return max(4, 2 * concurrency) if self.requests is None else self.requests

    def asked_at(self, concurrency: int) -> tuple[str, ...]:
        """Prompts of one round, from the first on; after the last comes the first again."""
        count = self.requests_at(concurrency)
        return tuple(self.prompts[number % len(self.prompts)] for number in range(count))

    def body(self, prompt: str, model: str | None) -> dict[str, Any]:
        """JSON of one request at temperature 0. ``model``: that the chat endpoint is asked for."""
        if self.endpoint is Endpoint.GENERATE:
            sampling = {
                "temperature": 0,
                "max_new_tokens": self.max_new_tokens,
                "ignore_eos": self.ignore_eos,
            }
            return {"text": prompt, "sampling_params": sampling}
        return {
            "model": model or "default",
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": self.max_new_tokens,
            "ignore_eos": self.ignore_eos,
            "return_meta_info": True,  # acceptance
        }


def rotated(number: int, servers: Sequence[Item]) -> list[Item]:
    """Order of round ``number``: each server is first equally often, or once more."""
    first = number % len(servers)
    return [*servers[first:], *servers[:first]]
