"""Faults of the mask in a layer with a sliding window."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.faults.recorded.edit import after, every, extents, need, rows_of
from engine.faults.recorded.injector import Apply, RecordedInjector
from engine.faults.recorded.masks import blocks, windowed, with_blocks
from engine.layout import Cells
from engine.step import Int64, VerifyStep

WINDOW = 6  # tokens: the trees of the recording fit in, the longer prefixes do not
# (positions of the queries, positions of the keys, prefix length) -> bool [queries, keys]
Window = Callable[[Int64, Int64, int], NDArray[np.bool_]]


def _windows(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    return windowed(steps, WINDOW)


def _masked_by(window: Window) -> Apply:
    """Clean windowed layout, whose masks are then made again with another window; padded requests stay."""

    def apply(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
        return [
            _edited(step, blocks(whole), window)
            for step, whole in zip(_windows(steps), steps, strict=True)
        ]

    return apply


def _edited(step: VerifyStep, cells: list[Cells], window: Window) -> VerifyStep:
    positions, geometry = need(step.inputs.positions, "inputs.positions"), extents(step)
    for request in range(step.raw_bs):
        prefix_len = int(geometry.prefix_lens[request])
        queries = positions[rows_of(step, request)]
        keys = np.concatenate([np.arange(prefix_len), queries])
        cells[request] *= window(queries, keys, prefix_len)
    return with_blocks(step, cells)


def _by_index(queries: Int64, keys: Int64, prefix_len: int) -> NDArray[np.bool_]:
    """Both counted in rows behind the prefix."""
    inside: NDArray[np.bool_] = np.less(
        prefix_len + np.arange(len(queries))[:, None] - np.arange(len(keys)), WINDOW
    )
    return inside


def _of_deepest_row(queries: Int64, keys: Int64, prefix_len: int) -> NDArray[np.bool_]:
    """One first key for all rows: that of the deepest."""
    inside: NDArray[np.bool_] = np.less(queries.max() - keys, WINDOW)[None].repeat(
        len(queries), axis=0
    )
    return inside


def _unwritten_rows(step: VerifyStep) -> VerifyStep:
    """A zeroed buffer into which only block_size rows a request were written."""
    width = need(step.config.block_size, "config.block_size")
    cells = blocks(step)
    for block in cells[: step.raw_bs]:
        block[width:] = 0
    return with_blocks(step, cells)


INJECTORS = (
    RecordedInjector(
        "window-by-index",
        "The sliding window counts rows instead of positions, so nodes late in the tree lose keys.",
        _masked_by(_by_index),
    ),
    RecordedInjector(
        "window-of-deepest-row",
        "All rows begin at the first key of the deepest one, so shallower rows lose committed tokens.",
        _masked_by(_of_deepest_row),
    ),
    RecordedInjector(
        "unwritten-mask-rows",
        "Only block_size rows of the zeroed mask are written, so nodes in later rows see nothing.",
        after(_windows, every(_unwritten_rows)),
    ),
)
