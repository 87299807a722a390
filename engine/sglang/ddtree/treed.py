"""From the drafter's hidden states to a tree and its rows: one CUDA graph for each captured batch size.

Some fifty launches lie between the drafter's forward and the target's. One by one they cost the host more than a
millisecond, which nothing hides: the device waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.graphs.capture import Capture, captured, with_result
from engine.sglang.ddtree.head import candidates
from engine.sglang.ddtree.options import Options
from engine.sglang.ddtree.padded import First, Padded
from engine.sglang.ddtree.rows import VerifyRows, verify_rows
from engine.sglang.ddtree.spine import build_trees


@dataclass(frozen=True, eq=False)
class Treed:
    """A batch's trees and what the target's forward gets of them."""

    tree: TreeTensors
    rows: VerifyRows


def treed(
    hidden: Tensor, roots: Tensor, seq_lens: Tensor, lm_head: Any, options: Options, tp_group: Any
) -> Treed:
    """From ``hidden`` [bs * (block size - 1), H], ``roots`` int64 [bs] and ``seq_lens`` [bs]. Shapes are fixed."""
    log_probs, tokens = (
        part.view(len(roots), options.max_depth, -1)
        for part in candidates(hidden, lm_head, options.candidates, tp_group)
    )
    tree = build_trees(log_probs, tokens, roots, options)
    return Treed(tree, verify_rows(tree, seq_lens, options.fault))


class TreeGraph:
    """``make`` as a graph of ``size`` requests, for as many or fewer.

    The result is a view of the graph's own buffers: it holds until the next call, on the same stream. ``make`` gets
    ``hidden``, ``roots`` and ``seq_lens`` alone; ``inputs`` are buffers for these, of at least as many requests.
    """

    def __init__(
        self,
        make: Callable[[Tensor, Tensor, Tensor], Treed],
        inputs: Padded,
        size: int,
        capture: Capture = captured,
    ) -> None:
        given, self._inputs = inputs.first(size), inputs
        self._graph, self.whole = with_result(lambda: make(*given), given[0].device, capture)
        self._graph.replay()  # until then the result holds anything, also what is no tree
        self._first = First(self.whole, size)

    def __call__(self, hidden: Tensor, roots: Tensor, seq_lens: Tensor) -> Treed:
        """The same as ``make``."""
        count = len(roots)
        for buffer, each in zip(self._inputs.only(count), (hidden, roots, seq_lens), strict=True):
            buffer.copy_(each)
        self._graph.replay()
        return self._first(count)
