"""A drafter that looks ahead with the target itself, blurred to a chosen accuracy.

A stand-in with known behaviour: at accuracy 1 its best token is always the target's own choice; below, at a share of
positions that depends on seed, request and position alone, the target's choice is only its second to fourth best.
It costs one target forward a token, so it shows trees and acceptance, never speed. Its marginals lie on the host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.decoding.accept import Sampler
from engine.drafters.base import Drafter
from engine.models.causal import CausalCache
from engine.models.decoder import Decoder
from engine.models.device import HOST, to_device, to_host

CANDIDATES = 8  # tokens a position that get noticeable probability
TAIL = -30.0  # logit of every other token


@dataclass
class _Lookahead:
    """Plain decoding of one request, as far as anybody asked; rewound when the text takes another turn."""

    rid: str
    cache: CausalCache
    tokens: list[int] = field(default_factory=list)  # in the cache, then one more that is not
    ranked: list[Tensor] = field(
        default_factory=list
    )  # ranked[i]: best tokens of the place after tokens[i]


class OracleDrafter(Drafter):
    """See the module. ``sampler`` must be the engine's, so that both choose alike."""

    def __init__(
        self,
        model: Decoder,
        block_size: int,
        *,
        accuracy: float = 1.0,
        seed: int = 0,
        sampler: Sampler | None = None,
        max_context: int = 2048,
    ) -> None:
        super().__init__(block_size)
        if not 0.0 <= accuracy <= 1.0:
            raise ValueError(f"accuracy: expected 0 … 1, found {accuracy}")
        self.model, self.accuracy, self.seed = model, accuracy, seed
        self.sampler, self.max_context = sampler or Sampler(), max_context
        self._requests: dict[str, _Lookahead] = {}
        self._history: dict[str, list[int]] = {}

    def start(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        """See :class:`Drafter`; features are ignored."""
        capacity = min(self.max_context, self.model.config.max_position)
        cache = CausalCache(self.model.config, capacity, self.model.dtype, self.model.device)
        self._requests[rid] = _Lookahead(rid, cache)
        self._history[rid] = list(tokens)

    def commit(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        """See :class:`Drafter`; features are ignored."""
        self._history[rid] += tokens

    def finish(self, rid: str) -> None:
        """See :class:`Drafter`."""
        del self._requests[rid], self._history[rid]

    def draft(self, rids: Sequence[str], roots: Sequence[int]) -> Tensor:
        """Look ahead as far as needed and blur; see :class:`Drafter`."""
        return torch.stack(
            [self._marginals(rid, root) for rid, root in zip(rids, roots, strict=True)]
        )

    def _marginals(self, rid: str, root: int) -> Tensor:
        known = [*self._history[rid], root]
        ahead = self._requests[rid]
        self._rewind(ahead, known)
        logits = torch.full((self.horizon, self.model.config.vocab_size), TAIL, device=HOST)
        for depth in range(self.horizon):
            place = len(known) + depth
            if place > ahead.cache.capacity:
                break
            self._advance(ahead, place)
            ids = self._blurred(ahead.ranked[place - 1], rid, place)
            logits[depth, ids] = self._profile(len(ids))
        return logits

    def _profile(self, count: int) -> Tensor:
        """Log-probabilities by rank: the best one's is the accuracy, the others halve."""
        best = min(max(self.accuracy, 0.05), 0.999)
        rest = 0.5 ** torch.arange(1, count, dtype=torch.float64, device=HOST)
        others = (1 - best) * rest / rest.sum().clamp(min=1e-9)
        return torch.cat([torch.tensor([best], device=HOST), others]).log().float()

    def _rewind(self, ahead: _Lookahead, known: list[int]) -> None:
        """Keep what agrees with ``known``, and take the rest of ``known`` as given."""
        same = 0
        while same < min(len(known), len(ahead.tokens)) and known[same] == ahead.tokens[same]:
            same += 1
        if same < len(known):
            ahead.cache.truncate(min(same, ahead.cache.length))
            ahead.tokens = list(known)
            del ahead.ranked[ahead.cache.length :]

    def _advance(self, ahead: _Lookahead, place: int) -> None:
        """Run the target until the tokens at ``place`` are ranked."""
        while len(ahead.ranked) < place:
            start = ahead.cache.length
            rows = to_device(torch.tensor(ahead.tokens[start:], device=HOST), self.model.device)
            positions = torch.arange(start, start + len(rows), device=self.model.device)
            with torch.inference_mode():
                out = self.model(
                    rows,
                    positions,
                    ahead.cache.attention(start),
                    logits_rows=positions[-1:] - start,
                )
            ahead.ranked += [torch.empty(0, dtype=torch.int64, device=HOST)] * (len(rows) - 1)
            ahead.ranked.append(self._rank(out.logits[0], ahead.rid, start + len(rows)))
            ahead.tokens.append(int(ahead.ranked[-1][0]))

    def _rank(self, logits: Tensor, rid: str, position: int) -> Tensor:
        """The target's choice first, then its next best tokens, int64 [CANDIDATES] on the host."""
        choice = self.sampler.choose(logits[None], rid, [position])
        best = logits.topk(min(CANDIDATES, len(logits))).indices
        both = to_host(torch.cat([choice, best]))
        return torch.cat([both[:1], both[1:][both[1:] != both[0]]])[:CANDIDATES]

    def _blurred(self, ranked: Tensor, rid: str, position: int) -> Tensor:
        """The same tokens; where the draw says so, the target's choice moves from rank 0 to rank 1 … 3."""
        digest = hashlib.blake2b(f"{self.seed}/{rid}/{position}".encode(), digest_size=9).digest()
        hit = int.from_bytes(digest[:8], "little") / 2**64 < self.accuracy
        if hit or len(ranked) < 2:
            return ranked
        rank = 1 + digest[8] % min(3, len(ranked) - 1)
        return torch.cat([ranked[1 : rank + 1], ranked[:1], ranked[rank + 1 :]])
