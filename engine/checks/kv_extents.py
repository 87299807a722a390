"""I3: ``seq_lens``, ``kv_indptr`` and ``kv_indices`` describe the committed tokens of each request.

Covered: token and page units, with and without the draft rows counted, the length that the step before committed, and
the extents of padded requests (which follow from their ``seq_lens``). Where nothing says whether the draft is counted,
either convention is right. Not covered: the slots of draft rows (I16).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.kv_lengths import KvLengths, committed_before
from engine.checks.row_extents import plain

HINTS = {
    "kv-without-draft": "The lengths are those of the prefix alone; this backend counts the draft rows too.",
    "kv-counts-draft-twice": "The draft rows are counted once more than this backend's layout has them.",
    "seq-lens": "Every offset that is derived from this length is wrong with it.",
    "kv-indices": "The slots are not those of the request's committed tokens.",
    "kv-extent": "No known miscount explains the extents.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most, and one about what belongs to no live request."""
    lengths = KvLengths(context)
    yield from _of_step(spec, context, lengths)
    for request in context.requests:
        found = next(_of_request(spec, context, lengths, request), None)
        if found is not None:
            yield found


def _of_step(spec: Spec, context: StepContext, lengths: KvLengths) -> Iterator[Finding]:
    """The first entry of ``kv_indptr``, its number of entries, and the extents of padded requests."""
    indptr, captured = context.step.inputs.kv_indptr, context.step.captured_bs
    if indptr is None or not context.step.requests:
        return
    if len(indptr) and indptr[0] != 0:
        yield _finding(spec, context, None, "kv-extent", "kv_indptr[0]", int(indptr[0]), 0)
    elif len(indptr) != captured + 1:
        place = "number of entries of kv_indptr"
        yield _finding(spec, context, None, "kv-extent", place, len(indptr), captured + 1)
    else:
        for request in range(context.step.raw_bs, captured):
            found, right = lengths.counted(request), lengths.right(request)
            start = lengths.true_start(request)
            shifted = (
                start is not None and bool(right) and int(indptr[request + 1]) == start + right[0]
            )
            if found is not None and right and found not in right and not shifted:
                place = f"kv length of padded request {request}"
                unit = lengths.unit
                name = lengths.miscount(request)
                yield _finding(spec, context, None, name, place, found, right[0], unit)
                return


def _of_request(
    spec: Spec, context: StepContext, lengths: KvLengths, request: int
) -> Iterator[Finding]:
    """The first that differs; its name is the first of the table that explains all that differs."""
    found, right = lengths.counted(request), lengths.right(request)
    recorded, prefix_len = lengths.seq_len(request), context.step.requests[request].prefix_len
    wrong_length = found is not None and bool(right) and found not in right
    wrong_seq_len = recorded is not None and recorded != prefix_len
    if wrong_seq_len and not (wrong_length and found not in lengths.of(request, recorded or 0)):
        place = f"seq_lens[{request}]"
        count = 2 if wrong_length else 1
        yield _finding(
            spec, context, request, "seq-lens", place, recorded, prefix_len, " tokens", count
        )
    if wrong_length:
        name = lengths.miscount(request) if not wrong_seq_len else "kv-extent"
        place = f"kv length of request {context.rid(request)}"
        cause = lengths.explained_by(request)
        one = _finding(spec, context, request, name, place, found, right[0], lengths.unit)
        yield one.explained_by(cause)
    before = committed_before(context, request)
    if before is not None and prefix_len not in before:
        place = (
            f"prefix of request {context.rid(request)}, after a step that committed {before[0]},"
        )
        yield _finding(spec, context, request, "seq-lens", place, prefix_len, before[0], " tokens")
    yield from _indices(spec, context, lengths, request)
    yield from _last_page(spec, context, lengths, request)


def _indices(
    spec: Spec, context: StepContext, lengths: KvLengths, request: int
) -> Iterator[Finding]:
    """The committed tokens' slots (or their pages), in order."""
    expected, start = lengths.prefix_entries(request), lengths.start(request)
    listed = context.step.inputs.kv_indices
    if expected is None or listed is None or start is None:
        return
    found = listed[max(start, 0) : max(start, 0) + len(expected)]
    entry = first_difference(found, expected)
    if entry is not None:
        value = int(found[entry]) if entry < len(found) else None
        column = entry * lengths.page
        one = spec.finding(
            context,
            request,
            "kv-indices",
            f"kv_indices[{start + entry}] is {plain(value)}, should be {int(expected[entry])}, the "
            f"{'page' if lengths.page > 1 else 'slot'} of position {column} of request {context.rid(request)}",
            hint=HINTS["kv-indices"],
            effect=Effect.OUTPUT,
            where=Where(column=column),
            expected=int(expected[entry]),
            found=value,
            count=count_differences(found, expected),
        )
        true = lengths.true_start(request)
        shifted = true is not None and np.array_equal(listed[true : true + len(expected)], expected)
        yield one.explained_by("I3" if shifted else None)


def _last_page(
    spec: Spec, context: StepContext, lengths: KvLengths, request: int
) -> Iterator[Finding]:
    found = lengths.last_page(request)
    right = [] if found is None else lengths.right_last_page(request)
    if found is not None and right and found not in right:
        place = f"kv_last_page_len[{request}]"
        yield _finding(spec, context, request, "kv-extent", place, found, right[0], " tokens")


def _finding(
    spec: Spec,
    context: StepContext,
    request: int | None,
    diagnosis: str,
    place: str,
    found: int | None,
    expected: int,
    unit: str = "",
    count: int = 1,
) -> Finding:
    return spec.finding(
        context,
        request,
        diagnosis,
        f"{place} is {plain(found)}{unit}, should be {expected}{unit}",
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        expected=expected,
        found=found,
        count=count,
    )
