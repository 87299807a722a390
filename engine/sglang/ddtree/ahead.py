"""Acceptance and the drafter's cache as two CUDA graphs a batch size, launched before the host knows what was accepted.

One by one, their launches cost the host more time than they take on the device, and the device would wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.graphs.capture import Capture, captured, with_result
from engine.sglang.ddtree.accept import Accepted, accept
from engine.sglang.ddtree.append import Appended, appended
from engine.sglang.ddtree.drafter_cache import DrafterCache


@dataclass(eq=False)
class _Known:
    """The graphs of a batch size."""

    inputs: tuple[Tensor, ...]  # predict, seq_lens, slots
    accept: Any
    accepted: Accepted
    appended: Appended
    append: Any = None
    features: Tensor | None = None  # [bs * steps, F]
    parts: tuple[Any, ...] = ()  # of the drafter's cache, as captured; kept as long as the graph


class Ahead:
    """Both graphs for every batch size that comes, captured when it first does.

    Trees must lie in buffers that stay, as :class:`.treed.TreeGraphs` leaves them: they are read in place, and the
    graphs are known by them. Results lie in buffers, too, until the next step on the same stream. Runs before a capture
    write to the drafter's cache what its replay then writes again.

    ``capture`` may be that of the trees' graphs (:func:`engine.graphs.capture.in_one_pool`).
    """

    def __init__(self, cache: DrafterCache, steps: int, capture: Capture = captured) -> None:
        self._cache, self._steps, self._capture = cache, steps, capture
        self._known: dict[TreeTensors, _Known] = {}
        self._room: Tensor | None = None  # features of all batch sizes, one at a time

    def reaches(self, seq_lens: Tensor) -> bool:
        """Whether the drafter knows all positions of a step behind prefixes of ``seq_lens`` [bs], on the host."""
        return self._cache.reaches(int(seq_lens.max()) + self._steps - 1)

    def accept(
        self, trees: TreeTensors, predict: Tensor, seq_lens: Tensor, slots: Tensor
    ) -> Accepted:
        """:func:`.accept.accept`, and what :meth:`append` needs of it (:func:`.append.appended`)."""
        given = (predict, seq_lens, slots)
        if trees not in self._known:
            self._known[trees] = self._accepting(trees, given)
        known = self._known[trees]
        for buffer, each in zip(known.inputs, given, strict=True):
            buffer.copy_(each)
        known.accept.replay()
        return known.accepted

    def append(self, trees: TreeTensors, hidden: Tensor) -> None:
        """Rows of ``hidden`` [bs * width, F] that the last :meth:`accept` of these trees accepted."""
        known = self._known[trees]
        if known.features is None:
            known.features = self._room_for(len(known.appended.rows), hidden)
        torch.index_select(hidden, 0, known.appended.rows, out=known.features)
        parts = self._cache.parts
        if known.append is None or any(map(is_not, parts, known.parts)):
            known.append, known.parts = self._appending(known.features, known.appended), parts
        known.append.replay()

    def _accepting(self, trees: TreeTensors, given: tuple[Tensor, ...]) -> _Known:
        predict, seq_lens, slots = inputs = tuple(each.clone() for each in given)

        def run() -> tuple[Accepted, Appended]:
            found = accept(trees, predict, self._steps)
            return found, appended(found, seq_lens, slots)

        graph, (found, goes) = with_result(run, predict.device, self._capture)
        return _Known(inputs, graph, found, goes)

    def _appending(self, features: Tensor, goes: Appended) -> Any:
        def run() -> None:
            self._cache.write(features, goes.positions, goes.slots)

        return self._capture(run, features.device)

    def _room_for(self, rows: int, hidden: Tensor) -> Tensor:
        """Twice as long when it is too short: what earlier graphs have captured stays theirs."""
        if self._room is None or len(self._room) < rows:
            longer = max(rows, 0 if self._room is None else 2 * len(self._room))
            self._room = hidden.new_empty(longer, hidden.shape[1])
        return self._room[:rows]
