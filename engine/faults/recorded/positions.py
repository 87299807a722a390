"""A fault of the rotary positions, and one of the rows of padded requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.faults.recorded.edit import every, need, need_padding, rows_of, with_inputs
from engine.faults.recorded.injector import RecordedInjector
from engine.step import VerifyStep


def _parents_positions(step: VerifyStep) -> VerifyStep:
    """A node's position is its parent's, as if levels were counted from the root's children on."""
    positions = need(step.inputs.positions, "inputs.positions").copy()
    for number, request in enumerate(step.requests):
        parents = np.maximum(request.tree.parents, 0)
        start = rows_of(step, number).start
        positions[start : start + len(parents)] = positions[start + parents]
    return with_inputs(step, positions=positions)


def _uninitialised_padding(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """The first padded replay alone: its buffers were not filled before it."""
    need_padding(steps)
    at = next(i for i, step in enumerate(steps) if step.captured_bs > step.raw_bs)
    return [*steps[:at], _garbage(steps[at]), *steps[at + 1 :]]


def _garbage(step: VerifyStep) -> VerifyStep:
    """Padded rows hold a number that no live row has."""
    positions = need(step.inputs.positions, "inputs.positions").copy()
    positions[rows_of(step, step.raw_bs - 1).stop :] = positions.max() + 1
    return with_inputs(step, positions=positions)


INJECTORS = (
    RecordedInjector(
        "positions-of-parents",
        "Levels are counted from the root's children on, so every node stands where its parent does.",
        every(_parents_positions),
    ),
    RecordedInjector(
        "uninitialised-padding",
        "The first replay runs before the rows of padded requests were filled.",
        _uninitialised_padding,
    ),
)
