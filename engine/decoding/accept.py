"""Acceptance: which nodes the target itself would have chosen.

Greedy verification predicts the argmax of every row; at a temperature each row is sampled once and the walk follows the
samples (*sample and match*): every emitted token is a fresh sample of the target given its true prefix, so the output
distribution is the target's. The uniform that a row consumes depends on seed, request and position only. Nodes of one
position share it, but a walk visits one node a position, so the samples along any path are independent; and plain
decoding with the same seed draws the same tokens. Uniforms are drawn on the host, whatever the device; the device of
the logits cuts its cumulative probabilities, in float64, where they fall. No torch generator takes part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.models.device import HOST, to_device


@dataclass(frozen=True)
class Sampler:
    """How a token is chosen from a row of logits."""

    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.temperature >= 0.0 and np.isfinite(self.temperature)):
            raise ValueError(f"temperature: expected a number >= 0, found {self.temperature}")

    def choose(self, logits: Tensor, rid: str, positions: Sequence[int]) -> Tensor:
        """One token a row, int64 [rows] on the device of ``logits`` [rows, V].

        ``positions``: those of the tokens being chosen.
        """
        if self.temperature == 0.0:
            return logits.argmax(dim=-1)
        probs = torch.softmax(logits.double() / self.temperature, dim=-1)
        cumulative = probs.cumsum(dim=-1)
        drawn = [self.uniform(rid, p) for p in positions]
        uniform = to_device(torch.tensor(drawn, dtype=torch.float64, device=HOST), logits.device)
        target = (uniform * cumulative[:, -1])[:, None]
        # searchsorted with right=True never lands on a token of probability zero.
        return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(
            max=logits.shape[-1] - 1
        )

    def uniform(self, rid: str, position: int) -> float:
        """A number in [0, 1) that depends on seed, request and position alone."""
        digest = hashlib.blake2b(f"{self.seed}/{rid}/{position}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") / 2**64


def walk(
    next_token: Sequence[int],
    next_sibling: Sequence[int],
    tokens: Sequence[int],
    predict: Sequence[int],
) -> list[int]:
    """Accepted nodes, root first: from each node on to the child that its own row predicts.

    All four are by node number; -1 ends a list. The prediction of the last node is the bonus token.
    """
    path, node = [0], next_token[0]
    while node != -1:
        if tokens[node] == predict[path[-1]]:
            path.append(node)
            node = next_token[node]
        else:
            node = next_sibling[node]
    return path
