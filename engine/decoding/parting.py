"""Where a text leaves plain decoding's, and whether rounding alone explains it.

In float32 a greedy text parts where something is wrong. In bfloat16 a verify step of many rows rounds otherwise than
plain decoding of one row, so two tokens that lie within a few units in the last place may change places. A sampled text
parts in any width where rounding moves the end of a token's share over the uniform that was drawn: with tens of
thousands of shares side by side that is much likelier than a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.checks.reference import margin_is_tiny
from engine.decoding.accept import Sampler
from engine.models.causal import CausalCache
from engine.models.decoder import Decoder
from engine.models.device import HOST, to_device, to_host

UNITS = 4  # in the last place


@dataclass(frozen=True)
class Parting:
    """The first token that differs between a text and plain decoding's."""

    place: int  # index among the new tokens
    # Greedy: by how much plain decoding prefers its own token, in logits. Sampled: how far the uniform lies from the
    # other token's share of the cumulative probability.
    margin: float
    # Both lie within 4 units in the last place of the model's dtype of the largest logit; sampled: so many units in the
    # last place of the largest logit, over the temperature. In bfloat16 that is a tenth or more: the margin says more.
    near_tie: bool

    def __str__(self) -> str:
        kind = "near-tie" if self.near_tie else "no near-tie"
        return f"parts at token {self.place} by {self.margin:.3g} ({kind})"


def parting(
    model: Decoder,
    prompt: Sequence[int],
    plain: Sequence[int],
    other: Sequence[int],
    sampler: Sampler | None = None,
    rid: str = "",
) -> Parting | None:
    """None for equal texts, and for one that is only shorter.

    Both continue ``prompt``, greedily or as ``sampler`` draws for request ``rid``.
    """
    place = next(
        (i for i, pair in enumerate(zip(plain, other, strict=False)) if len(set(pair)) > 1), None
    )
    if place is None:
        return None
    logits = _next_logits(model, [*prompt, *plain[:place]])
    if sampler is not None and sampler.temperature > 0.0:
        uniform = sampler.uniform(rid, len(prompt) + place)
        gap = _outside(logits, sampler.temperature, uniform, other[place])
        largest = float(logits.abs().max()) * torch.finfo(model.dtype).eps
        return Parting(place, gap, gap <= UNITS * largest / sampler.temperature)
    mine, theirs = float(logits[plain[place]]), float(logits[other[place]])
    dtype, best = str(model.dtype).removeprefix("torch."), float(logits.max())
    near = all(margin_is_tiny(np.array([best, found]), dtype) for found in (mine, theirs))
    return Parting(place, mine - theirs, near)


def _outside(logits: torch.Tensor, temperature: float, uniform: float, token: int) -> float:
    """How far a uniform lies outside a token's share of the cumulative probability; 0.0 inside."""
    cumulative = torch.softmax(logits.double() / temperature, dim=-1).cumsum(dim=-1)
    drawn, end = uniform * float(cumulative[-1]), float(cumulative[token])
    start = float(cumulative[token - 1]) if token else 0.0
    return max(start - drawn, drawn - end, 0.0)


@torch.inference_mode()
def _next_logits(model: Decoder, tokens: list[int]) -> torch.Tensor:
    """Logits [V] on the host of what follows ``tokens``, in one plain forward."""
    cache = CausalCache(model.config, len(tokens), model.dtype, model.device)
    ids = to_device(torch.tensor(tokens, device=HOST), model.device)
    positions = torch.arange(len(tokens), device=model.device)
    out = model(ids, positions, cache.attention(0), logits_rows=positions[-1:])
    return to_host(out.logits[0])
