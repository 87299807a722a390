"""Faults of sizes: integers, buffers and tables that end before what they must serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.faults.recorded.edit import (
    after,
    every,
    extents,
    need,
    need_padding,
    with_config,
    with_inputs,
)
from engine.faults.recorded.injector import Apply, RecordedInjector
from engine.faults.recorded.long_context import at_long_context
from engine.step import VerifyStep


def _offsets_in(kind: str) -> Apply:
    """``mask_indptr`` summed up in integers of that kind."""

    def edit(step: VerifyStep) -> VerifyStep:
        wrapped = need(step.inputs.mask_indptr, "inputs.mask_indptr").astype(kind).astype(np.int64)
        return with_inputs(with_config(step, index_dtype=kind), mask_indptr=wrapped)

    return every(edit)


def _buffer_of(cells: Callable[[VerifyStep, int], int]) -> Apply:
    """A persistent mask of so many cells; the function gets a step and the longest context."""

    def edit(step: VerifyStep) -> VerifyStep:
        if step.config.mask_capacity is None:
            raise ValueError(
                "config.mask_capacity: expected the cells of a persistent mask (a replay), found none"
            )
        longest = need(step.config.max_context, "config.max_context")
        return with_config(step, mask_capacity=cells(step, longest))

    return every(edit)


def _without_draft_columns(step: VerifyStep, longest: int) -> int:
    return int(extents(step).q_lens.sum()) * longest


def _of_live_batch(step: VerifyStep, longest: int) -> int:
    q_lens = extents(step).q_lens[: step.raw_bs]
    return int((q_lens * (longest + q_lens)).sum())


def _buffer_of_live_batch(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    need_padding(steps)
    return _buffer_of(_of_live_batch)(steps)


def _short_rope_table(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """A table for the longest committed text of the recording and its root."""
    longest = max(int(extents(step).prefix_lens.max()) for step in steps)
    return [with_config(step, max_position=longest + 1) for step in steps]


INJECTORS = (
    RecordedInjector(
        "int32-offsets",
        "Mask offsets are summed up in int32, which a long context overflows.",
        after(at_long_context, _offsets_in("int32")),
    ),
    RecordedInjector(
        "int8-offsets",
        "Mask offsets are summed up in int8, which any batch overflows.",
        _offsets_in("int8"),
    ),
    RecordedInjector(
        "buffer-without-draft-columns",
        "The persistent mask is sized for the longest context, without a column for each draft row.",
        _buffer_of(_without_draft_columns),
    ),
    RecordedInjector(
        "buffer-of-live-batch",
        "The persistent mask is sized for the live requests of a larger captured batch.",
        _buffer_of_live_batch,
    ),
    RecordedInjector(
        "short-rope-table",
        "The rotary table ends with the longest committed text, where the draft goes on.",
        _short_rope_table,
    ),
)
