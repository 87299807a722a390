"""Prompt lookup: what followed the last few tokens when they occurred before, as marginals. No training, no model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.drafters.base import Drafter
from engine.models.device import HOST

LONGEST_NGRAM = 4
GROWTH = 8.0  # a match that is one token longer counts this many times more


class PromptLookupDrafter(Drafter):
    """Weighted counts of the tokens 1 … L places after earlier occurrences of the current suffix.

    Tokens that never stood at a place get -inf, so a text without repetition yields a tree of the root alone.
    """

    def __init__(self, block_size: int, vocab_size: int) -> None:
        super().__init__(block_size)
        self.vocab_size = vocab_size
        self._history: dict[str, list[int]] = {}

    def start(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        """See :class:`Drafter`; features are ignored."""
        self._history[rid] = list(tokens)

    def commit(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        """See :class:`Drafter`; features are ignored."""
        self._history[rid] += tokens

    def finish(self, rid: str) -> None:
        """See :class:`Drafter`."""
        del self._history[rid]

    def draft(self, rids: Sequence[str], roots: Sequence[int]) -> Tensor:
        """Counts as log-weights, on the host; see :class:`Drafter`."""
        lines = [
            self._marginals([*self._history[rid], root])
            for rid, root in zip(rids, roots, strict=True)
        ]
        return torch.stack(lines)

    def _marginals(self, history: list[int]) -> Tensor:
        """Logits [L, V] of the tokens after ``history``."""
        weights = torch.zeros(self.horizon, self.vocab_size, device=HOST)
        for end in range(1, len(history)):
            length = _common_suffix(history, end)
            if length:
                following = history[end : end + self.horizon]
                for place, token in enumerate(following):
                    weights[place, token] += GROWTH**length
        return weights.log()


def _common_suffix(history: list[int], end: int) -> int:
    """Tokens before ``end`` that equal the last ones of ``history``, at most LONGEST_NGRAM."""
    length = 0
    while length < min(LONGEST_NGRAM, end) and history[end - 1 - length] == history[-1 - length]:
        length += 1
    return length
