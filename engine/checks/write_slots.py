"""I16: each live row writes its KV to a slot of its own, inside the pool and outside every prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64

HINTS = {
    "slot-in-prefix": "The row overwrites a committed token's keys and values.",
    "slot-collision": "Two rows write to one slot: one of them is lost.",
    "slot-range": "The slot does not exist in the pool.",
    "write-slots": "The padding slot is shared by all padded rows: what a live row writes there is lost.",
}


Bad = tuple[Sequence[int], Callable[[int], str]]  # local rows, and what is wrong with one of them


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most; the first that applies in the order of the diagnoses."""
    slots = context.step.inputs.out_cache_loc
    assert slots is not None
    for request in context.requests:
        found = next(_of_request(spec, context, request, slots), None)
        if found is not None:
            yield found


def _of_request(spec: Spec, context: StepContext, request: int, slots: Int64) -> Iterator[Finding]:
    rows = context.oracle.rows(request)
    mine = slots[rows.start : rows.stop]
    for diagnosis, bad, text in (
        ("slot-in-prefix", *_in_prefix(context, mine)),
        ("slot-collision", *_collisions(context, slots, rows)),
        ("slot-range", *_out_of_range(context, mine)),
        ("write-slots", *_in_padding(context, mine)),
    ):
        if len(bad):
            local = int(bad[0])
            node = local if local < context.oracle.trees[request].num_nodes else None
            yield spec.finding(
                context,
                request,
                diagnosis,
                f"row {rows.start + local} of request {context.rid(request)} writes to slot "
                f"{int(mine[local])}, {text(local)}",
                hint=HINTS[diagnosis],
                effect=Effect.OUTPUT,
                where=Where(node=node, row=rows.start + local),
                expected="a slot of its own",
                found=int(mine[local]),
                count=len(bad),
            )


def _in_prefix(context: StepContext, mine: Int64) -> Bad:
    owners = {
        int(slot): (request.rid, position)
        for request in context.step.requests
        if request.prefix_slots is not None
        for position, slot in enumerate(request.prefix_slots)
    }
    bad = [i for i, slot in enumerate(mine) if int(slot) in owners]

    def text(local: int) -> str:
        rid, position = owners[int(mine[local])]
        return f"which holds position {position} of request {rid}"

    return bad, text


def _collisions(context: StepContext, slots: Int64, rows: range) -> Bad:
    """Later rows that repeat a slot of an earlier live row; the padding slot is judged by itself."""
    first: dict[int, int] = {}
    live_end = int(context.oracle.geometry.qo_indptr[context.step.raw_bs])
    repeated: dict[int, int] = {}
    for row in range(min(live_end, len(slots))):
        slot = int(slots[row])
        if slot in first and slot != _padding_slot(context):
            repeated[row] = first[slot]
        first.setdefault(slot, row)
    bad = [row - rows.start for row in rows if row in repeated]
    return bad, lambda local: f"as row {repeated[rows.start + local]} does"


def _out_of_range(context: StepContext, mine: Int64) -> Bad:
    size = context.step.config.pool_size
    outside = (mine < 0) if size is None else (mine < 0) | (mine >= size)
    pool = "the pool begins at 0" if size is None else f"the pool has slots 0 … {size - 1}"
    return np.flatnonzero(outside).tolist(), lambda local: pool


def _in_padding(context: StepContext, mine: Int64) -> Bad:
    slot = _padding_slot(context)
    bad = np.flatnonzero(mine == slot).tolist() if slot is not None else []
    return bad, lambda local: "which is the padding slot"


def _padding_slot(context: StepContext) -> int | None:
    return context.step.config.padding_slot
