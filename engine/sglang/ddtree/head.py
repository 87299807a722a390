"""The best tokens of each draft position over a vocab-parallel head.

Each rank holds a shard of the vocabulary. It hands over its best tokens with their logits and the logarithm of its sum
of exponentials, in one gather; every rank then merges the same numbers and comes to the same candidates.

Covered: padded shards, vocabularies with added tokens, shards smaller than the candidates, -inf. Not covered: the
target's logit scale and soft cap, which keep a position's order (they would weigh positions differently, no more).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.graphs.candidates import best_tokens

CHUNK = 256  # rows whose logits lie in memory at once


@dataclass(frozen=True)
class Shard:
    """Which tokens the rows of a rank's head weight stand for; the names are those of ``lm_head.shard_indices``."""

    num_org_elements: int
    num_org_elements_padded: int
    num_added_elements: int
    org_vocab_start_index: int
    added_vocab_start_index: int

    @classmethod
    def of(cls, lm_head: Any) -> Shard:
        """The shard of a rank's head."""
        return cls(*(int(getattr(lm_head.shard_indices, name)) for name in cls.__annotations__))

    @property
    def size(self) -> int:
        """Tokens of this rank."""
        return self.num_org_elements + self.num_added_elements

    def logits(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """Logits [rows, size] of ``hidden`` [rows, H], without padding; ``weight`` [padded vocabulary, H]."""
        own = hidden.to(weight.dtype)
        logits = own @ weight[: self.num_org_elements].T
        if not self.num_added_elements:
            return logits
        start = self.num_org_elements_padded
        added = own @ weight[start : start + self.num_added_elements].T
        return torch.cat([logits, added], dim=1)

    def ids(self, columns: Tensor) -> Tensor:
        """Token ids int64 of columns of :meth:`logits`."""
        base = columns + self.org_vocab_start_index
        if not self.num_added_elements:
            return base
        added = columns - self.num_org_elements + self.added_vocab_start_index
        return torch.where(columns < self.num_org_elements, base, added)


def local_best(hidden: Tensor, weight: Tensor, shard: Shard, count: int) -> Tensor:
    """This rank's part, float64 [rows, 2 * count + 1]: logits, token ids, and the logarithm of the sum of exponentials.

    Where the shard has fewer than ``count`` tokens, logits are -inf and ids 0. float64 holds every id.
    """
    chunks = [_best(part, weight, shard, count) for part in torch.split(hidden, CHUNK)]
    return torch.cat(chunks) if len(chunks) != 1 else chunks[0]


def _best(hidden: Tensor, weight: Tensor, shard: Shard, count: int) -> Tensor:
    part = torch.zeros(len(hidden), 2 * count + 1, dtype=torch.float64, device=hidden.device)
    part[:, :count] = -torch.inf
    part[:, -1] = -torch.inf
    known = min(count, shard.size)
    if known and len(hidden):
        logits = shard.logits(hidden, weight)
        log_probs, columns = best_tokens(logits, known)
        values = logits.gather(1, columns).double()
        finite = log_probs[:, 0] > -torch.inf
        part[:, :known] = values.masked_fill(log_probs == -torch.inf, -torch.inf)
        part[:, count : count + known] = shard.ids(columns).double()
        part[:, -1] = torch.where(finite, values[:, 0] - log_probs[:, 0], -torch.inf)
    return part


def merge(parts: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities float64 and token ids int64 [rows, count], descending, equal ones by id.

    ``parts``: :func:`local_best` of all ranks, float64 [ranks, rows, 2 * count + 1].
    """
    if len(parts) == 1:
        values, ids = parts[0, :, :count], parts[0, :, count:-1].long()
    else:
        values = parts[:, :, :count].transpose(0, 1).flatten(1)
        ids = parts[:, :, count:-1].transpose(0, 1).flatten(1).long()
        order = ids.argsort(dim=1, stable=True)
        values, ids = values.gather(1, order), ids.gather(1, order)
        order = values.argsort(dim=1, descending=True, stable=True)[:, :count]
        values, ids = values.gather(1, order), ids.gather(1, order)
    log_probs = values - parts[:, :, -1].logsumexp(0)[:, None]
    log_probs = log_probs.masked_fill(log_probs.isnan(), -torch.inf).clamp(max=0.0)
    return log_probs, ids.contiguous()


def candidates(hidden: Tensor, lm_head: Any, count: int, tp_group: Any) -> tuple[Tensor, Tensor]:
    """:func:`merge` of all ranks' :func:`local_best`; ``hidden`` [rows, H]; the same on every rank of ``tp_group``."""
    part = local_best(hidden, lm_head.weight, Shard.of(lm_head), count)
    ranks = int(tp_group.world_size)
    if ranks == 1:
        return merge(part[None], count)
    gathered = torch.empty(ranks * part.numel(), dtype=part.dtype, device=part.device)
    tp_group.all_gather_into_tensor(gathered, part.flatten())
    return merge(gathered.view(ranks, *part.shape), count)
