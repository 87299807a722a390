"""I16: each live row writes its KV to a slot of its own, inside the pool and outside every prefix.

Padding rows of a live request may write to any of the request's own draft slots, but over nobody's tokens. Where the
kernel reads draft keys through ``kv_indices``, a real row must write where they are read. Padded requests are I11's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, once_a_step
from engine.checks.differences import is_among
from engine.checks.finding import Effect, Finding, Where
from engine.checks.kv_lengths import KvLengths
from engine.step import Int64

HINTS = {
    "slot-in-prefix": "The row overwrites a committed token's keys and values.",
    "slot-collision": "Two rows write to one slot: one of them is lost.",
    "slot-range": "The slot does not exist in the pool.",
    "write-slots": "What the row writes is not where it is read.",
}
Bad = tuple[Collection[int], Callable[[int], str]]  # flat rows, and what is wrong with one of them


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most: the first diagnosis that covers all its wrong rows."""
    slots = context.step.inputs.out_cache_loc
    assert slots is not None
    if _all_free(context, slots):
        return
    for request in context.requests:
        rows = context.oracle.rows(request)
        mine = range(rows.start, min(rows.stop, len(slots)))
        bad = {
            "slot-in-prefix": _in_prefix(context, slots, mine),
            "slot-collision": _collisions(context, slots, mine),
            "slot-range": _out_of_range(context, slots, mine),
            "write-slots": _unread(context, slots, request),
        }
        wrong = set[int]().union(*(places for places, _ in bad.values()))
        if wrong:
            covering = (name for name, (places, _) in bad.items() if wrong <= set(places))
            diagnosis = next(covering, "write-slots")
            yield _finding(spec, context, request, diagnosis, sorted(wrong), slots, bad)


def _all_free(context: StepContext, slots: Int64) -> bool:
    """Whether all rows, live or not, write to slots of their own that nobody holds or reads: then no row is wrong."""
    config = context.step.config
    taken = slots.tolist()
    own = len(set(taken)) == len(taken) and config.padding_slot not in taken
    least, most = min(taken, default=0), max(taken, default=0)
    inside = least >= 0 and (config.pool_size is None or most < config.pool_size)
    return own and inside and not config.kv_indptr_counts_draft and not _rows_in_prefix(context)


def _finding(
    spec: Spec,
    context: StepContext,
    request: int,
    diagnosis: str,
    wrong: list[int],
    slots: Int64,
    bad: dict[str, Bad],
) -> Finding:
    row, rows = wrong[0], context.oracle.rows(request)
    why = next(text(row) for places, text in bad.values() if row in places)
    node = row - rows.start
    cause = None
    if diagnosis == "slot-collision" and all(_with_padded(context, slots, row) for row in wrong):
        cause = "I11"
    if diagnosis == "write-slots" and context.has("I3", request):
        cause = "I3" if _right_as_slots(context, slots, request) else None
    return spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.rid(request)}, row {row}: writes to slot {int(slots[row])}, {why}",
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        where=Where(node=node if node < context.oracle.trees[request].num_nodes else None, row=row),
        expected="a slot of its own",
        found=int(slots[row]),
        count=len(wrong),
        consequence_of=cause,
    )


def _in_prefix(context: StepContext, slots: Int64, mine: range) -> Bad:
    def text(row: int) -> str:
        for request in reversed(context.step.requests):
            held = [] if request.prefix_slots is None else request.prefix_slots == slots[row]
            if np.any(held):
                position = int(np.flatnonzero(held)[-1])
                return f"which holds position {position} of request {request.rid}"
        raise AssertionError(f"row {row} writes to no prefix")

    return [row for row in _rows_in_prefix(context) if row in mine], text


@once_a_step
def _rows_in_prefix(context: StepContext) -> list[int]:
    """Flat rows whose slot holds a committed token of any request."""
    slots = context.step.inputs.out_cache_loc
    held = [r.prefix_slots for r in context.step.requests if r.prefix_slots is not None]
    if slots is None:
        return []
    rows: list[int] = np.flatnonzero(is_among(slots, held)).tolist()
    return rows


def _collisions(context: StepContext, slots: Int64, mine: range) -> Bad:
    """Rows that repeat the slot of an earlier live row, or of a padded one; the padding slot is judged by itself."""
    shared = _shared_slots(context)
    live_end = context.oracle.rows(context.step.raw_bs - 1).stop
    real = {row for i in context.requests for row in context.oracle.real_rows(i)} if shared else ()
    other: dict[int, int] = {}
    for row in mine if shared else ():
        twins = [twin for twin in shared.get(int(slots[row]), []) if twin != row]
        twins = [twin for twin in twins if twin < row or twin >= live_end]
        twins = [twin for twin in twins if row in real or twin in real]  # padding rows may share
        if twins:
            other[row] = twins[0]
    return other, lambda row: f"as row {other[row]} does"


@once_a_step
def _shared_slots(context: StepContext) -> dict[int, list[int]]:
    """``{slot: flat rows}`` of the slots that several rows write to, but for the padding slot."""
    rows: dict[int, list[int]] = {}
    recorded, padding = context.step.inputs.out_cache_loc, context.step.config.padding_slot
    slots = [] if recorded is None else recorded.tolist()
    if len(set(slots)) < len(slots):
        for row, slot in enumerate(slots):
            rows.setdefault(slot, []).append(row)
    return {slot: many for slot, many in rows.items() if len(many) > 1 and slot != padding}


def _with_padded(context: StepContext, slots: Int64, row: int) -> bool:
    """Whether the slot of a row is also that of a padded request's row."""
    return bool(
        (slots[int(context.oracle.geometry.qo_indptr[context.step.raw_bs]) :] == slots[row]).any()
    )


def _out_of_range(context: StepContext, slots: Int64, mine: range) -> Bad:
    size = context.step.config.pool_size
    held = slots[mine.start : mine.stop]
    wrong = held < 0 if size is None else (held < 0) | (held >= size)
    outside = [mine.start + int(row) for row in np.flatnonzero(wrong)] if wrong.any() else []
    pool = "the pool begins at 0" if size is None else f"the pool has slots 0 … {size - 1}"
    return outside, lambda _: pool


def _unread(context: StepContext, slots: Int64, request: int) -> Bad:
    """Real rows that write to the padding slot, or elsewhere than ``kv_indices`` has their key read."""
    padding, read = context.step.config.padding_slot, _read_slots(context, request)
    real = context.oracle.real_rows(request)
    taken = slots[real.start : real.stop].tolist()
    lost = {row for row, slot in zip(real, taken, strict=False) if slot == padding}
    elsewhere = {
        row: slot
        for row, mine, slot in zip(real, taken, read, strict=False)
        if slot != mine and np.count_nonzero(slots == mine) == 1  # else a collision
    }

    def text(row: int) -> str:
        return (
            "which is the padding slot"
            if row in lost
            else f"its key is read at slot {elsewhere[row]}"
        )

    return lost | set(elsewhere), text


def _right_as_slots(context: StepContext, slots: Int64, request: int) -> bool:
    """Whether the rows are right if ``kv_indices`` holds each page's first slot instead of its number."""
    real, read = context.oracle.real_rows(request), _read_slots(context, request, pages=False)
    return len(read) == len(real) and slots[real.start : real.stop].tolist() == read


def _read_slots(context: StepContext, request: int, *, pages: bool = True) -> list[int]:
    """Slots that ``kv_indices`` gives for the draft rows of a request, none where it leaves them out.

    ``pages``: entries are numbers of pages; otherwise the first slots of pages.
    """
    lengths, listed = KvLengths(context), context.step.inputs.kv_indices
    start, prefix_len = lengths.start(request), context.step.requests[request].prefix_len
    if not context.step.config.kv_indptr_counts_draft or listed is None or start is None:
        return []
    if start != lengths.true_start(request) or lengths.counted(request) not in lengths.right(
        request
    ):
        return []
    places = range(prefix_len, prefix_len + context.oracle.num_verified(request))
    first, last = places.start // lengths.page, places[-1] // lengths.page
    table = dict(enumerate(listed[start + first : start + last + 1].tolist(), start=first))
    known = lengths.prefix_entries(request)
    for shared in range(first, 0 if known is None else min(len(known), last + 1)):
        if known is not None and shared in table:  # a page with prefix tokens is judged by I3
            table[shared] = int(known[shared]) * (1 if pages else lengths.page)
    width = lengths.page if pages else 1
    entries = [(place // lengths.page, place % lengths.page) for place in places]
    return [table[n] * width + within for n, within in entries if n in table]
