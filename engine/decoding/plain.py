"""Plain decoding: one token a forward, the text that every other method is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from engine.decoding.accept import Sampler
from engine.models.causal import generate_plain
from engine.models.decoder import Decoder


def decode_plain(
    model: Decoder,
    rid: str,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    sampler: Sampler,
    stop: Sequence[int] = (),
) -> Iterator[int]:
    """Tokens after ``prompt`` one by one; ends with a stop token. The engine draws the same ones from ``sampler``."""
    position = len(prompt)

    def sample(logits: Tensor) -> int:
        nonlocal position
        token = int(sampler.choose(logits[None], rid, [position])[0])
        position += 1
        return token

    yield from generate_plain(model, prompt, max_new_tokens, stop=stop, sample=sample)
