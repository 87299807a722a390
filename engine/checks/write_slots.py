"""I16: each live row writes its KV to a slot of its own, inside the pool and outside every prefix.

Padding rows of a live request may write to any of the request's own draft slots, but over nobody's tokens. Where the
kernel reads draft keys through ``kv_indices``, a real row must write where they are read. Padded requests are I11's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from engine.checks.context import Spec, StepContext
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
    for request in context.requests:
        rows = context.oracle.rows(request)
        mine = range(rows.start, min(rows.stop, len(slots)))
        bad = {
            "slot-in-prefix": _in_prefix(context, slots, mine),
            "slot-collision": _collisions(context, slots, mine),
            "slot-range": _out_of_range(context, slots, mine),
            "write-slots": _unread(context, slots, request),
        }
        wrong = set().union(*(places for places, _ in bad.values()))
        if wrong:
            covering = (name for name, (places, _) in bad.items() if wrong <= set(places))
            diagnosis = next(covering, "write-slots")
            yield _finding(spec, context, request, diagnosis, sorted(wrong), slots, bad)


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
    owners = {
        int(slot): (request.rid, position)
        for request in context.step.requests
        if request.prefix_slots is not None
        for position, slot in enumerate(request.prefix_slots)
    }

    def text(row: int) -> str:
        rid, position = owners[int(slots[row])]
        return f"which holds position {position} of request {rid}"

    return [row for row in mine if int(slots[row]) in owners], text


def _collisions(context: StepContext, slots: Int64, mine: range) -> Bad:
    """Rows that repeat the slot of an earlier live row, or of a padded one; the padding slot is judged by itself."""
    shared: dict[int, list[int]] = {}
    for row, slot in enumerate(slots.tolist()):
        if slot != context.step.config.padding_slot:
            shared.setdefault(slot, []).append(row)
    real = {row for i in context.requests for row in context.oracle.real_rows(i)}
    live_end = int(context.oracle.geometry.qo_indptr[context.step.raw_bs])
    other: dict[int, int] = {}
    for row in mine:
        twins = [twin for twin in shared.get(int(slots[row]), []) if twin != row]
        twins = [twin for twin in twins if twin < row or twin >= live_end]
        twins = [twin for twin in twins if row in real or twin in real]  # padding rows may share
        if twins:
            other[row] = twins[0]
    return other, lambda row: f"as row {other[row]} does"


def _with_padded(context: StepContext, slots: Int64, row: int) -> bool:
    """Whether the slot of a row is also that of a padded request's row."""
    return bool(
        (slots[int(context.oracle.geometry.qo_indptr[context.step.raw_bs]) :] == slots[row]).any()
    )


def _out_of_range(context: StepContext, slots: Int64, mine: range) -> Bad:
    size = context.step.config.pool_size
    outside = [row for row in mine if slots[row] < 0 or (size is not None and slots[row] >= size)]
    pool = "the pool begins at 0" if size is None else f"the pool has slots 0 … {size - 1}"
    return outside, lambda _: pool


def _unread(context: StepContext, slots: Int64, request: int) -> Bad:
    """Real rows that write to the padding slot, or elsewhere than ``kv_indices`` has their key read."""
    padding, read = context.step.config.padding_slot, _read_slots(context, request)
    real = [row for row in context.oracle.real_rows(request) if row < len(slots)]
    lost = {row for row in real if slots[row] == padding}
    taken = slots.tolist()
    elsewhere = {
        row: slot
        for row, slot in zip(real, read, strict=False)
        if slot != slots[row] and taken.count(taken[row]) == 1  # else a collision
    }

    def text(row: int) -> str:
        return (
            "which is the padding slot"
            if row in lost
            else f"its key is read at slot {elsewhere[row]}"
        )

    return lost | set(elsewhere), text


def _read_slots(context: StepContext, request: int) -> list[int]:
    """Slots that ``kv_indices`` gives for the draft rows of a request, none where it leaves them out."""
    lengths, listed = KvLengths(context), context.step.inputs.kv_indices
    start, prefix_len = lengths.start(request), context.step.requests[request].prefix_len
    if not context.step.config.kv_indptr_counts_draft or listed is None or start is None:
        return []
    if start != lengths.true_start(request) or lengths.counted(request) not in lengths.right(
        request
    ):
        return []
    table = listed[start:].copy()
    known = lengths.prefix_entries(request)
    if known is not None:  # a page that the prefix shares is judged by I3
        table[: len(known)] = known[: len(table)]
    places = range(prefix_len, prefix_len + context.oracle.num_verified(request))
    entries = [(place // lengths.page, place % lengths.page) for place in places]
    return [int(table[n]) * lengths.page + within for n, within in entries if n < len(table)]
