"""A target without a download: a tiny random model and a tokenizer of 48 printable characters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.models.catalog import Target
from engine.models.tiny import random_decoder


class CharTokenizer:
    """Token ``i`` is the character ``chr(i + 48)``."""

    def encode_chat(self, prompt: str) -> list[int]:
        return [ord(c) % 48 for c in prompt]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.token_text(i) for i in ids)

    def token_text(self, token: int) -> str:
        return chr(token + 48)


def tiny_target(seed: int = 0) -> Target:
    return Target("tiny", Path("tiny"), random_decoder("llama", seed=seed), CharTokenizer())  # type: ignore[arg-type]
