"""Acceptance and the drafter's cache as two CUDA graphs, launched before the host knows what was accepted.

One by one, their launches cost the host more time than they take on the device, and the device would wait for them.
"""

from __future__ import annotations

from operator import is_not
from typing import Any

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.graphs.capture import Capture, captured, with_result
from engine.sglang.ddtree.accept import Accepted, accept
from engine.sglang.ddtree.append import Appended, appended
from engine.sglang.ddtree.drafter_cache import DrafterCache
from engine.sglang.ddtree.padded import First, Padded


class Ahead:
    """Both graphs of ``size`` requests, for as many or fewer; padding is written to slot 0.

    ``trees`` [size, …] lie in buffers that stay, as :class:`.treed.TreeGraph` leaves them, and are trees by now: they
    are read in place. Results lie in buffers, too, until the next step on the same stream. ``inputs`` are buffers for
    ``predict``, ``seq_lens`` and ``slots`` of :meth:`accept`, ``features`` one for rows [requests * steps, F] of
    :meth:`append`, both for at least ``size`` requests. Runs before a capture write to the drafter's cache what its
    replay then writes again; while all inputs are zero, that is slot 0 alone.

    ``capture`` may be that of the trees' graph (:func:`engine.graphs.capture.in_one_pool`).
    """

    def __init__(
        self,
        cache: DrafterCache,
        trees: TreeTensors,
        inputs: Padded,
        features: Padded,
        capture: Capture = captured,
    ) -> None:
        size, self._width = trees.tokens.shape
        self._cache, self._inputs, self._features, self._capture = cache, inputs, features, capture
        predict, seq_lens, slots = inputs.first(size)
        (self._rows_in,) = features.first(size)  # of the graph, [size * steps, F]
        steps = len(self._rows_in) // size

        def run() -> tuple[Accepted, Appended]:
            found = accept(trees, predict, steps)
            return found, appended(found, seq_lens, slots)

        self._accept, (found, self._goes) = with_result(run, predict.device, capture)
        self._accept.replay()  # until then slots are anything
        self._accepted, self._rows = First(found, size), First(self._goes.rows, size)
        self._append, self._parts = self._appending()

    def accept(self, predict: Tensor, seq_lens: Tensor, slots: Tensor) -> Accepted:
        """:func:`.accept.accept` of the trees' first requests, and what :meth:`append` needs of it.

        ``predict`` int64 [bs, width], ``seq_lens`` [bs], ``slots`` int64 [bs * width] (:func:`.append.appended`).
        """
        count = len(predict)
        for buffer, each in zip(self._inputs.only(count), (predict, seq_lens, slots), strict=True):
            buffer.copy_(each)
        self._accept.replay()
        return self._accepted(count)

    def append(self, hidden: Tensor) -> None:
        """Rows of ``hidden`` [bs * width, F] that the last :meth:`accept` accepted."""
        count = len(hidden) // self._width
        torch.index_select(hidden, 0, self._rows(count), out=self._features.only(count)[0])
        if any(map(is_not, self._cache.parts, self._parts)):  # replaced since the capture
            self._append, self._parts = self._appending()
        self._append.replay()

    def _appending(self) -> tuple[Any, tuple[Any, ...]]:
        """The graph, and the parts of the drafter's cache in it, to be kept as long."""

        def run() -> None:
            self._cache.write(self._rows_in, self._goes.positions, self._goes.slots)

        graph = self._capture(run, self._rows_in.device)
        return graph, self._cache.parts
