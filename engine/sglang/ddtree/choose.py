"""The target's choice at every row: its best token, or one sample of what plain decoding would sample from.

Sampled rows are drawn once each and the walk follows the draws (*sample and match*): every emitted token is a fresh
draw from the target given its true prefix, so the output distribution is plain decoding's, whatever the drafter says.

Covered: temperature, top-k, top-p and min-p as the server's own sampler combines them (all on the same probabilities),
logit biases, greedy and sampled requests in one batch. The noise of every rank must be the same: it comes from torch's
generator of the device, which SGLang seeds alike on all ranks, as DFLASH's own sampling assumes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 256  # rows whose probabilities lie in memory at once
TINY = torch.finfo(torch.float32).tiny


def choose(logits: Tensor, sampling: Any, width: int) -> Tensor:
    """Choices int64 [rows] of ``logits`` [rows, V], ``width`` rows a request; ``sampling``: SamplingBatchInfo or None.

    Biases are added to ``logits`` in place.
    """
    if sampling is not None and sampling.logit_bias is not None:
        logits.add_(sampling.logit_bias.repeat_interleave(width, dim=0))
    best = logits.argmax(dim=-1)
    if sampling is None or sampling.is_all_greedy:
        return best
    rows = Rows(sampling, width)
    drawn = torch.empty_like(best)
    for start in range(0, len(logits), CHUNK):
        part = slice(start, start + CHUNK)
        probs = torch.softmax(logits[part].float() / rows.temperatures[part], dim=-1)
        drawn[part] = draw(rows.cut(probs, part), torch.empty_like(probs).exponential_())
    return torch.where(rows.top_ks <= 1, best, drawn)


def draw(weights: Tensor, noise: Tensor) -> Tensor:
    """One column of each row with probability in proportion to ``weights`` [rows, V]: an exponential race.

    ``noise``: independent draws of the unit exponential distribution, like ``weights``.
    """
    return (weights / noise.clamp(min=TINY)).argmax(dim=-1)


class Rows:
    """The requests' settings, one a row."""

    def __init__(self, sampling: Any, width: int) -> None:
        own = sampling
        self.whole = not (
            own.need_top_k_sampling or own.need_top_p_sampling or own.need_min_p_sampling
        )
        settings = (own.temperatures.view(-1, 1), own.top_ks, own.top_ps, own.min_ps)
        self.temperatures, self.top_ks, self.top_ps, self.min_ps = (
            setting.repeat_interleave(width, dim=0) for setting in settings
        )

    def cut(self, probs: Tensor, part: slice) -> Tensor:
        """``probs`` of the rows in ``part`` [n, V] with zeros where their settings allow no token."""
        if self.whole:
            return probs
        return cut(probs, self.top_ks[part], self.top_ps[part], self.min_ps[part])


def cut(probs: Tensor, top_ks: Tensor, top_ps: Tensor, min_ps: Tensor) -> Tensor:
    """``probs`` [rows, V] with zeros at tokens that fall to a row's top-k, top-p or min-p, each [rows].

    Top-p keeps a token while those before it weigh at most top-p; min-p compares with the row's best token.
    """
    ordered, columns = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    rank = torch.arange(probs.shape[1], device=probs.device)
    kept = (rank < top_ks[:, None]) & (before <= top_ps[:, None])
    kept &= ordered >= ordered[:, :1] * min_ps[:, None]
    return torch.zeros_like(probs).scatter(1, columns, ordered * kept)
