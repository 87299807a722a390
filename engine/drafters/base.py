"""What a drafter is to the engine: marginals for the next positions of each request.

The interface fits DFlash: hidden states of committed tokens go in, ``[L, V]`` logits a request come out. A drafter that
needs no hidden states leaves ``target_layer_ids`` empty.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor


class Drafter(ABC):
    """Marginals of draft positions 1 … L, L = ``block_size - 1``.

    Calls per request: ``start`` once, then ``draft`` and ``commit`` in turn, ``finish`` once. Between ``draft`` and
    ``commit`` nothing is assumed about how many tokens were accepted.
    """

    target_layer_ids: tuple[int, ...] = ()  # decoder layers whose output it wants

    def __init__(self, block_size: int) -> None:
        if block_size < 2:
            raise ValueError(
                f"block_size: expected at least 2 (the root and one draft), found {block_size}"
            )
        self.block_size = block_size

    @property
    def horizon(self) -> int:
        """Draft positions L."""
        return self.block_size - 1

    @abstractmethod
    def start(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        """The prompt was committed. ``features``: [tokens, len(target_layer_ids) * hidden_size]."""

    @abstractmethod
    def draft(self, rids: Sequence[str], roots: Sequence[int]) -> Tensor:
        """Logits float [bs, L, V]: row j is about the token j + 1 places after the root. -inf: never draft it.

        On the model's device or on the host, whichever it is made on.
        """

    @abstractmethod
    def commit(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        """Tokens (the old root first) whose KV is now committed, with their features as in ``start``."""

    @abstractmethod
    def finish(self, rid: str) -> None:
        """The request is over; forget it."""
