"""Acceptance on texts that are known: the drafter's marginals at every place of a text, and the walk of any budget.

Greedy decoding by drafts yields the target's own text, so a run needs no verification to be followed: each step begins
where the one before ended. Covered: temperature 0, any budgets of one cap, chains. Not covered: numerics of a verify
pass of another width (near-ties).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decoding.acceptance_curve import accepted_length, walked_nodes
from engine.decoding.best_first import Candidates, grow
from engine.models.decoder import Decoder
from engine.models.dflash import DFlash
from engine.training.blocks import block_hidden, target_features


@dataclass(frozen=True)
class Followed:
    """One text under one setting."""

    tokens: int  # emitted after the first, which the prompt's prefill gives
    steps: int

    @property
    def accept_length(self) -> float:
        """Mean tokens a step, the bonus included."""
        return self.tokens / self.steps


@torch.no_grad()
def place_candidates(
    target: Decoder, drafter: DFlash, text: Sequence[int], first: int, count: int
) -> list[Candidates]:
    """The ``count`` best tokens of each draft position for a root at every place ``first`` … len(text) - 2."""
    device = target.device
    tokens = torch.tensor([list(text)], device=device)
    anchors = torch.arange(first, len(text) - 1, device=device)[None]
    features = target_features(target, tokens, drafter.config.target_layer_ids)
    hidden = block_hidden(drafter, target.embedding, features, tokens, anchors)[0]
    return [_candidates(drafter.logits(rows, target.lm_head), count) for rows in hidden]


def _candidates(logits: Tensor, count: int) -> Candidates:
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    best, ids = log_probs.topk(min(count, logits.shape[-1]), dim=-1)
    return Candidates(best.double().cpu().numpy(), ids.cpu().numpy())


def follow(
    candidates: Sequence[Candidates], text: Sequence[int], first: int, budget: int, topk: int | None
) -> Followed:
    """Decode ``text`` from its place ``first`` on, whose token is the first root."""
    place, steps, last = first, 0, len(text) - 1
    while place < last:
        kept = candidates[place - first]
        if topk is not None:
            kept = Candidates(kept.log_probs[:, :topk], kept.tokens[:, :topk])
        built = grow(kept, int(text[place]), budget)
        nodes = walked_nodes(built, [int(t) for t in text[place + 1 :]])
        place += accepted_length(nodes, budget)
        steps += 1
    return Followed(last - first, steps)
