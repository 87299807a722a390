"""Faults of the slots that rows write their keys and values to, and of where those are read again."""

from __future__ import annotations

import numpy as np

from engine.faults.recorded.edit import after, every, need, rows_of, with_inputs
from engine.faults.recorded.injector import RecordedInjector
from engine.faults.recorded.kv_layouts import with_draft
from engine.step import VerifyStep


def _of_other_pool(step: VerifyStep) -> VerifyStep:
    """Numbers of a pool that is counted on behind this one."""
    slots = need(step.inputs.out_cache_loc, "inputs.out_cache_loc").copy()
    live = slice(0, rows_of(step, step.raw_bs - 1).stop)
    slots[live] += need(step.config.pool_size, "config.pool_size")
    return with_inputs(step, out_cache_loc=slots)


def _of_block(step: VerifyStep) -> VerifyStep:
    """Slots of block_size rows a request; the others keep the padding slot."""
    width = need(step.config.block_size, "config.block_size")
    slots = need(step.inputs.out_cache_loc, "inputs.out_cache_loc").copy()
    for request in range(step.raw_bs):
        rows = rows_of(step, request)
        slots[rows.start + width : rows.stop] = need(
            step.config.padding_slot, "config.padding_slot"
        )
    return with_inputs(step, out_cache_loc=slots)


def _draft_keys_shifted(step: VerifyStep) -> VerifyStep:
    """The draft's part of ``kv_indices`` begins one row late and wraps round."""
    listed = need(step.inputs.kv_indices, "inputs.kv_indices").copy()
    ends = need(step.inputs.kv_indptr, "inputs.kv_indptr")[1:].tolist()
    for request in range(step.raw_bs):
        rows = rows_of(step, request)
        draft = slice(ends[request] - (rows.stop - rows.start), ends[request])
        listed[draft] = np.roll(listed[draft], -1)
    return with_inputs(step, kv_indices=listed)


INJECTORS = (
    RecordedInjector(
        "slots-of-other-pool",
        "The draft rows get the slot numbers of another layer type's pool, behind the end of this one.",
        every(_of_other_pool),
    ),
    RecordedInjector(
        "slots-of-block",
        "Only block_size rows a request get slots, nodes in later rows write to the padding slot.",
        every(_of_block),
    ),
    RecordedInjector(
        "draft-keys-shifted",
        "The kernel reads each draft key from the slot of the row behind it.",
        after(with_draft, every(_draft_keys_shifted)),
    ),
)
