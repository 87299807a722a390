"""A fault of the per-row arrays' lengths."""

from __future__ import annotations

from collections.abc import Sequence

from engine.faults.recorded.edit import every, need, need_padding, rows_of, with_inputs
from engine.faults.recorded.injector import RecordedInjector
from engine.step import VerifyStep


def _unpadded_slots(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    need_padding(steps)
    return every(_live_slots)(steps)


def _live_slots(step: VerifyStep) -> VerifyStep:
    """As many slots as the live batch has rows."""
    slots = need(step.inputs.out_cache_loc, "inputs.out_cache_loc")
    return with_inputs(step, out_cache_loc=slots[: rows_of(step, step.raw_bs - 1).stop])


INJECTORS = (
    RecordedInjector(
        "unpadded-slots",
        "The write slots of the live batch are handed to a replay that runs over the captured one.",
        _unpadded_slots,
    ),
)
