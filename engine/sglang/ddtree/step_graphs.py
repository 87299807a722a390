"""A step's three graphs for the batch sizes that SGLang has captured for the target, captured while the server starts.

A batch runs in the graphs of the smallest size that holds it, as the target's forward does; beyond the largest size
everything is launched one by one, as the target's forward then is.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.graphs.capture import Capture
from engine.sglang.ddtree.ahead import Ahead
from engine.sglang.ddtree.drafter_cache import DrafterCache
from engine.sglang.ddtree.options import Options
from engine.sglang.ddtree.padded import Padded
from engine.sglang.ddtree.treed import Treed, TreeGraph

logger = logging.getLogger(__name__)
Make = Callable[[Tensor, Tensor, Tensor], Treed]


@dataclass(frozen=True, eq=False)
class _Known:
    """The graphs of a size."""

    trees: TreeGraph
    ahead: Ahead | None


class StepGraphs:
    """``make`` and, where there is a ``cache``, acceptance and that cache in graphs of ``sizes`` requests.

    ``projection`` [H, F] is the drafter's, from the target's features to its own hidden states: both have its type.
    Raises ``RuntimeError`` where a graph cannot be captured.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        make: Make,
        cache: DrafterCache | None,
        options: Options,
        projection: Tensor,
        capture: Capture,
    ) -> None:
        self._sizes, self._make, self._cache = sorted(set(sizes)), make, cache
        self._options, self._capture = options, capture
        self._known: dict[int, _Known] = {}
        most, (hidden, features) = self._sizes[-1], projection.shape
        numbers = torch.empty(0, dtype=torch.int64, device=projection.device)
        with torch.no_grad():  # ordinary tensors, which also inference mode may fill
            self._drafted = Padded(
                most,
                projection.new_zeros(most * options.max_depth, hidden),
                numbers.new_zeros(most),  # roots
                numbers.new_zeros(most),  # prefixes
            )
            if cache is not None:
                width = options.target_width
                self._chosen = Padded(
                    most,
                    numbers.new_zeros(most, width),  # the target's choices
                    numbers.new_zeros(most),  # prefixes
                    numbers.new_zeros(most * width),  # slots
                )
                self._features = Padded(most, projection.new_zeros(most * options.steps, features))
            self._capture_all(projection.device)

    def treed(self, hidden: Tensor, roots: Tensor, seq_lens: Tensor) -> Treed:
        """The same as ``make``."""
        known = self._holding(len(roots))
        return (self._make if known is None else known.trees)(hidden, roots, seq_lens)

    def ahead(self, seq_lens: Tensor) -> Ahead | None:
        """For a batch whose trees were made here, behind prefixes ``seq_lens`` [bs] on the host.

        None beyond the largest size, and where the drafter does not know all positions of the step.
        """
        known = self._holding(len(seq_lens))
        if known is None or known.ahead is None or self._cache is None:
            return None
        last = int(seq_lens.max()) + self._options.steps - 1
        return known.ahead if self._cache.reaches(last) else None

    def _holding(self, count: int) -> _Known | None:
        """The smallest size for ``count`` requests."""
        place = bisect_left(self._sizes, count)
        return self._known[self._sizes[place]] if place < len(self._sizes) else None

    def _capture_all(self, device: torch.device) -> None:
        """The largest first: smaller ones then find room in its memory."""
        begun = time.perf_counter()
        for size in reversed(self._sizes):
            try:
                self._known[size] = self._captured(size)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)  # steps run on another stream
            except Exception as error:
                raise RuntimeError(
                    f"DDTREE: the CUDA graphs of {size} requests could not be captured: {error}. "
                    "A smaller --cuda-graph-max-bs or --mem-fraction-static leaves more memory for them; "
                    "with --disable-cuda-graph there are none."
                ) from error
        logger.info(
            "Capture DDTREE cuda graphs end. Time elapsed: %.2f s. bs %s",
            time.perf_counter() - begun,
            self._sizes,
        )

    def _captured(self, size: int) -> _Known:
        trees = TreeGraph(self._make, self._drafted, size, self._capture)
        if self._cache is None:
            return _Known(trees, None)
        whole = trees.whole.tree
        return _Known(trees, Ahead(self._cache, whole, self._chosen, self._features, self._capture))
