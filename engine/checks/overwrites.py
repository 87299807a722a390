"""Whose keys and values a wrong write slot destroys."""

from __future__ import annotations

import numpy as np

from engine.checks.context import StepContext
from engine.checks.finding import Finding
from engine.checks.paths import recorded_nodes


def lost_rows(context: StepContext, request: int) -> set[int]:
    """Flat rows of a request whose slot another row writes to as well, or that is no slot of its own."""
    slots, config = context.step.inputs.out_cache_loc, context.step.config
    if slots is None:
        return set()
    mine = [row for row in context.oracle.rows(request) if row < len(slots)]
    values = slots.tolist()
    return {
        row
        for row in mine
        if values.count(values[row]) > 1
        or values[row] < 0
        or values[row] == config.padding_slot
        or (config.pool_size is not None and values[row] >= config.pool_size)
    }


def overwrites_prefix(context: StepContext, request: int) -> bool:
    """Whether a live row writes to a slot of the request's committed tokens."""
    slots, prefix = context.step.inputs.out_cache_loc, context.step.requests[request].prefix_slots
    live = int(context.oracle.geometry.qo_indptr[context.step.raw_bs])
    return slots is not None and prefix is not None and bool(np.isin(prefix, slots[:live]).any())


def overwritten(context: StepContext, request: int, finding: Finding) -> bool:
    """Whether the rows of a finding about write slots (I11, I16) destroy something that the request keeps."""
    slots = context.step.inputs.out_cache_loc
    if slots is None:
        return False
    prefix = context.step.requests[request].prefix_slots
    writers = _writers(context, finding)
    if prefix is not None and {int(slots[row]) for row in writers} & set(prefix.tolist()):
        return True
    nodes = recorded_nodes(context, request)
    start = context.oracle.rows(request).start
    kept = context.oracle.real_rows(request) if nodes is None else [start + n for n in nodes]
    lost = lost_rows(context, request) & set(kept)
    if finding.check == "I11":
        return bool(lost & _twins(context, writers, request))
    own = finding.request == context.rid(request)
    return bool(lost) if own else bool(lost & _twins(context, writers, request))


def _writers(context: StepContext, finding: Finding) -> list[int]:
    """Flat rows that the finding is about."""
    slots, indptr = context.step.inputs.out_cache_loc, context.oracle.geometry.qo_indptr
    assert slots is not None
    if finding.check == "I11":
        return list(range(int(indptr[context.step.raw_bs]), min(int(indptr[-1]), len(slots))))
    numbers = [i for i in context.requests if context.rid(i) == finding.request]
    return [row for i in numbers for row in context.oracle.rows(i) if row < len(slots)]


def _twins(context: StepContext, writers: list[int], request: int) -> set[int]:
    """Rows of the request that write where one of the writers does."""
    slots = context.step.inputs.out_cache_loc
    assert slots is not None
    taken = {int(slots[row]) for row in writers}
    rows = context.oracle.rows(request)
    return {row for row in rows if row < len(slots) and int(slots[row]) in taken}
