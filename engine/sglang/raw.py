"""RawStep: one verify step on its way from the hooks to the writer's process. Needs numpy alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.sglang.packed import Packed


@dataclass(frozen=True)
class Layout:
    """What one verify forward was laid out with, but for its arrays."""

    graph: str  # "eager" or "replay"
    captured_bs: int
    rows: int  # a request
    width: int | None  # that the backend believes in
    max_extend_len: int | None
    mask_capacity: int | None  # cells of the persistent buffer, on replay
    max_context: int | None
    pool_size: int | None
    deterministic: bool | None
    blind: bool = False  # whether the host knew no lengths: arrays were cut to a bound
    padded: bool = False  # whether the arrays hold the rows of padded requests too


def cells_of(layout: Layout, lengths: list[int]) -> int:
    """Mask cells that either the rows sent or the width believed in may reach."""
    widths = {layout.rows, layout.width or layout.rows}
    return max(sum(width * (length + width) for length in lengths) for width in widths)


@dataclass(frozen=True)
class Tree:
    """Where the tree is told.

    ``eagle``: arrays ``parent_list`` [requests, n] and ``selected`` [requests, rows - 1]; ``ngram``: ``mask`` uint8
    [requests * rows * rows]; ``chain``: each row continues the one before; ``links``: nothing better than the links
    themselves is known.
    """

    kind: str
    topk: int | None = None
    mask: NDArray[Any] | None = None


TOLD = {"committed_lens": "prefix_lens", "committed_slots": "prefix_slots"}


@dataclass(frozen=True)
class Ends:
    """How the requests stand after a verification that emits by itself, in lists the host has anyway."""

    emitted: tuple[tuple[int, ...], ...]
    finished: tuple[bool, ...]
    stops: tuple[int, ...]  # end-of-sequence tokens


@dataclass
class RawStep:
    """Everything of one step; arrays may be read once what is ``arriving`` has arrived."""

    number: int
    laid: Layout
    rids: tuple[str, ...]
    greedy: bool | None
    vocab_size: int | None
    logits_dtype: str | None
    topk: int | None
    page_size: int | None
    algorithm: str
    tree: Tree
    ends: Ends | None
    packs: list[Packed]
    arriving: list[Any] = field(default_factory=list)  # copies under way, each with an ``event``
    next_tells: tuple[str, ...] = ()  # arrays that :meth:`told_by` finds in the next step's

    @property
    def bytes(self) -> int:
        """Of all arrays."""
        return sum(len(pack.data) for pack in self.packs)

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: array for pack in self.packs for name, array in pack.arrays().items()}

    def array(self, name: str) -> NDArray[Any] | None:
        """An array by name; None where it was not taken."""
        return self._arrays.get(name)

    def told_by(self, following: RawStep) -> None:
        """Take what this step committed from what the next one began with; of any other one, nothing."""
        count = len(self.rids)
        if following.number == self.number + 1 and following.rids[:count] == self.rids:
            for name in self.next_tells:
                found = following.array(TOLD[name])
                if found is not None:
                    self._arrays[name] = found[:count]

    def ints(self, name: str) -> NDArray[np.int64] | None:
        """The same as int64."""
        found = self.array(name)
        return None if found is None else found.astype(np.int64)
