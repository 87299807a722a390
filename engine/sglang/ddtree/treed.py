"""From the drafter's hidden states to a tree and its rows: one CUDA graph a batch size.

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


@dataclass(frozen=True, eq=False)
class _Captured:
    inputs: tuple[Tensor, ...]
    graph: Any
    result: Treed


class TreeGraphs:
    """``make`` as a graph for every shape that comes, captured when it first does.

    The result lies in the graph's own buffers, always the same for a shape: it holds until the next call of that shape,
    on the same stream. ``make`` gets ``hidden``, ``roots`` and ``seq_lens`` alone.
    """

    def __init__(
        self, make: Callable[[Tensor, Tensor, Tensor], Treed], capture: Capture = captured
    ) -> None:
        self._make, self._capture = make, capture
        self._known: dict[tuple[Any, ...], _Captured] = {}

    def __call__(self, hidden: Tensor, roots: Tensor, seq_lens: Tensor) -> Treed:
        """The same as ``make``."""
        given = (hidden, roots, seq_lens)
        key = tuple((each.shape, each.dtype) for each in given)
        if key not in self._known:
            self._known[key] = self._captured(given)
        found = self._known[key]
        for buffer, each in zip(found.inputs, given, strict=True):
            buffer.copy_(each)
        found.graph.replay()
        return found.result

    def _captured(self, given: tuple[Tensor, ...]) -> _Captured:
        inputs = tuple(each.clone() for each in given)
        graph, result = with_result(lambda: self._make(*inputs), inputs[0].device, self._capture)
        return _Captured(inputs, graph, result)
