"""The table of injectors on recorded steps and how one is applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.faults.recorded import (
    capacity,
    commits,
    kv_extents,
    logits,
    mask_extents,
    packing,
    positions,
    ranks,
    rows,
    slots,
    texts,
    tree_form,
    tree_size,
    walks,
    window,
)
from engine.faults.recorded.injector import RecordedInjector
from engine.step import VerifyStep

_MODULES = (
    *(rows, tree_size, kv_extents, mask_extents, packing, capacity, tree_form, window, logits),
    *(positions, walks, commits, slots, ranks, texts),
)
RECORDED_INJECTORS: dict[str, RecordedInjector] = {
    injector.name: injector for module in _MODULES for injector in module.INJECTORS
}
RECORDED_FAULTS: tuple[str, ...] = tuple(RECORDED_INJECTORS)


def inject_recorded(name: str, steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """Clean steps in order of time with the named fault, each with the fault's name in its record.

    Raises ``ValueError`` for an unknown name, for no steps, and where the steps cannot show the fault.
    """
    if name not in RECORDED_INJECTORS:
        raise ValueError(f"fault: expected one of {', '.join(RECORDED_FAULTS)}, found {name!r}")
    if not steps:
        raise ValueError("steps: expected at least one, found none")
    try:
        changed = RECORDED_INJECTORS[name].apply(steps)
    except ValueError as problem:
        raise ValueError(f"fault {name}: {problem}") from None
    return [replace(step, workbench=replace(step.workbench, fault=name)) for step in changed]
