"""The loss over blocks: cross-entropy against a frozen head, weighted by how much each place matters.

Two weightings. ``exp``: exp(-(k - 1) / gamma) for place k = 1 … L, as in DFlash. ``d-pace``: the share of the expected
accepted length that place k carries, w_k = sum over m >= k of the product of q~_i for i <= m, with q~ = (1 - alpha) q
+ alpha, held fixed; it is the gradient of that expectation with respect to log q_k when alpha is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from engine.training.softmax_rows import cross_entropy_rows_

CHUNK = 8192  # rows whose logits exist at a time
UNKNOWN = -1  # a label past the end of the text


class _HeadLoss(torch.autograd.Function):
    """Per-row cross-entropy of ``hidden @ head^T``; the logits exist for one chunk of rows at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        losses, best, slopes = [], [], []
        for rows, wanted in zip(
            torch.split(hidden, CHUNK), torch.split(labels, CHUNK), strict=True
        ):
            logits = rows @ head.T
            loss, found = cross_entropy_rows_(logits, wanted)
            losses.append(loss)
            best.append(found)
            slopes.append(logits @ head)
        ctx.save_for_backward(torch.cat(slopes))
        choice = torch.cat(best)
        ctx.mark_non_differentiable(choice)
        return torch.cat(losses), choice

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slopes,) = ctx.saved_tensors
        return (slopes * grads[0][:, None]).to(slopes.dtype), None, None


def head_loss(hidden: Tensor, head: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy float32 [rows] and argmax int64 [rows] of each row.

    ``hidden`` [rows, width] and ``head`` [V, width] of one dtype, the head without gradient; ``labels`` int64 [rows],
    none of them UNKNOWN.
    """
    loss, best = _HeadLoss.apply(hidden, head, labels)  # type: ignore[no-untyped-call]
    return loss, best


@dataclass(frozen=True)
class Weighting:
    """How places of a block are weighted."""

    kind: Literal["exp", "d-pace"] = "exp"
    gamma: float = 7.0
    alpha: float = 0.5

    def weights(self, losses: Tensor, known: Tensor) -> Tensor:
        """Weights float32 like ``losses`` [..., L], 0 where not ``known``; they carry no gradient."""
        length = losses.shape[-1]
        if self.kind == "exp":
            places = torch.arange(length, device=losses.device)
            return torch.exp(-places / self.gamma) * known
        probability = torch.exp(-losses.detach()).masked_fill(~known, 0.0)
        smooth = (1 - self.alpha) * probability + self.alpha
        reached = smooth.masked_fill(~known, 0.0).cumprod(dim=-1)
        return reached.flip(-1).cumsum(dim=-1).flip(-1) * known


@dataclass(frozen=True, eq=False)
class BlockLoss:
    """Loss and figures of a batch."""

    loss: Tensor  # scalar, weighted mean in nats
    correct: Tensor  # float32 [L], blocks whose place k is right
    counted: Tensor  # float32 [L], blocks that have a place k
    accepted: Tensor  # scalar: mean tokens a block would emit as a chain, the bonus included


def block_loss(hidden: Tensor, head: Tensor, labels: Tensor, weighting: Weighting) -> BlockLoss:
    """``hidden`` [..., L, width] after the final norm, ``labels`` int64 [..., L], UNKNOWN past the end."""
    known = labels != UNKNOWN
    rows = hidden.reshape(-1, hidden.shape[-1])
    losses, best = head_loss(rows, head, labels.clamp(min=0).reshape(-1))
    losses, best = losses.view(labels.shape), best.view(labels.shape)
    weights = weighting.weights(losses, known)
    right = (best == labels) & known
    axes = tuple(range(labels.ndim - 1))
    return BlockLoss(
        (losses * weights).sum() / weights.sum().clamp(min=1e-6),
        right.sum(dim=axes).float(),
        known.sum(dim=axes).float(),
        1 + right.long().cumprod(dim=-1).sum(dim=-1).float().mean(),
    )


def cosine(step: int, steps: int, warm_up: float, floor: float = 0.05) -> float:
    """Factor of the learning rate: up in a line for a share of all steps, then down half a cosine to ``floor``."""
    start = max(int(warm_up * steps), 1)
    if step < start:
        return (step + 1) / start
    done = min((step - start) / max(steps - start, 1), 1.0)
    return floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2
