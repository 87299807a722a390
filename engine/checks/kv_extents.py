"""I3: ``seq_lens``, ``kv_indptr`` and ``kv_indices`` describe the committed tokens of each request.

Covered: token and page units, with and without the draft counted, and the length that the step before committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64

HINTS = {
    "kv-without-draft": "The lengths are those of the prefix alone; this backend counts the draft rows too.",
    "kv-counts-draft-twice": "The draft rows are counted once more than this backend's layout has them.",
    "seq-lens": "Every offset that is derived from this length is wrong with it.",
    "kv-indices": "The slots are not those of the request's committed tokens.",
    "kv-extent": "No known miscount explains the extents.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most, and one about the first entry of ``kv_indptr``."""
    indptr = context.step.inputs.kv_indptr
    if indptr is not None and len(indptr) and indptr[0] != 0:
        yield _finding(spec, context, None, "kv-extent", "kv_indptr[0]", int(indptr[0]), 0, 1)
        return
    for request in context.requests:
        found = next(_of_request(spec, context, request), None)
        if found is not None:
            yield found


def _of_request(spec: Spec, context: StepContext, request: int) -> Iterator[Finding]:
    """In the order of the table, each only if it explains what differs."""
    length, seq_lens = _counted(context, request), context.step.inputs.seq_lens
    prefix_len = context.step.requests[request].prefix_len
    draft, true = int(context.oracle.q_lens[request]), _true_length(context, request)
    recorded = None if seq_lens is None or request >= len(seq_lens) else int(seq_lens[request])
    right_lens = recorded in (None, prefix_len)
    if length is not None and length != _in_unit(context, true) and right_lens:
        name = _miscount(context, length, prefix_len, draft, true)
        where = f"kv length of request {context.rid(request)}"
        yield _finding(spec, context, request, name, where, length, _in_unit(context, true), 1)
    if not right_lens and recorded is not None:
        where = f"seq_lens[{request}]"
        yield _finding(spec, context, request, "seq-lens", where, recorded, prefix_len, 1)
    before = _committed_before(context, request)
    if before is not None and before != prefix_len:
        where = f"prefix of request {context.rid(request)} after a step that committed {before}:"
        yield _finding(spec, context, request, "seq-lens", where, prefix_len, before, 1)
    yield from _last_page(spec, context, request, true)
    yield from _indices(spec, context, request)


def _true_length(context: StepContext, request: int) -> int:
    """Tokens that ``kv_indptr`` should count for a request."""
    counts_draft = bool(context.step.config.kv_indptr_counts_draft)
    draft = int(context.oracle.q_lens[request]) if counts_draft else 0
    return context.step.requests[request].prefix_len + draft


def _page(context: StepContext) -> int:
    """Tokens that one entry of ``kv_indices`` stands for."""
    config = context.step.config
    return (config.page_size or 1) if config.kv_indptr_unit == "page" else 1


def _in_unit(context: StepContext, tokens: int) -> int:
    return -(-tokens // _page(context))


def _counted(context: StepContext, request: int) -> int | None:
    indptr = context.step.inputs.kv_indptr
    if indptr is None or request + 1 >= len(indptr):
        return None
    return int(indptr[request + 1] - indptr[request])


def _miscount(context: StepContext, length: int, prefix_len: int, draft: int, true: int) -> str:
    if context.step.config.kv_indptr_counts_draft and length == _in_unit(context, prefix_len):
        return "kv-without-draft"
    if length == _in_unit(context, true + draft):
        return "kv-counts-draft-twice"
    return "kv-extent"


def _committed_before(context: StepContext, request: int) -> int | None:
    """What the step before says that it committed for the same request id."""
    if context.previous is None or context.previous.commit.seq_lens is None:
        return None
    rid, lengths = context.rid(request), context.previous.commit.seq_lens
    for number, other in enumerate(context.previous.requests):
        if other.rid == rid and number < len(lengths):
            return int(lengths[number])
    return None


def _last_page(spec: Spec, context: StepContext, request: int, true: int) -> Iterator[Finding]:
    lengths, page = context.step.inputs.kv_last_page_len, _page(context)
    if lengths is None or page == 1 or request >= len(lengths) or true == 0:
        return
    expected, found = (true - 1) % page + 1, int(lengths[request])
    if found != expected:
        where = f"kv_last_page_len[{request}]"
        yield _finding(spec, context, request, "kv-extent", where, found, expected, 1)


def _indices(spec: Spec, context: StepContext, request: int) -> Iterator[Finding]:
    """The committed tokens' slots (or their pages), in order."""
    slots, indptr = context.step.requests[request].prefix_slots, context.step.inputs.kv_indptr
    listed = context.step.inputs.kv_indices
    if slots is None or listed is None or indptr is None or request + 1 >= len(indptr):
        return
    page, start = _page(context), int(indptr[request])
    expected: Int64 = slots if page == 1 else slots[::page] // page
    found = listed[max(start, 0) : max(start, 0) + len(expected)]
    entry = first_difference(found, expected)
    if entry is not None:
        value = int(found[entry]) if entry < len(found) else None
        where = f"kv_indices[{start + entry}] (position {entry * page} of {context.rid(request)})"
        count = count_differences(found, expected)
        yield _finding(
            spec, context, request, "kv-indices", where, value, int(expected[entry]), count,
            column=entry * page,
        )  # fmt: skip


def _finding(
    spec: Spec,
    context: StepContext,
    request: int | None,
    diagnosis: str,
    where: str,
    found: int | None,
    expected: int,
    count: int,
    column: int | None = None,
) -> Finding:
    unit = "" if "indices" in where else (" pages" if _page(context) > 1 else " tokens")
    return spec.finding(
        context,
        request,
        diagnosis,
        f"{where} is {'missing' if found is None else f'{found}{unit}'}, should be {expected}{unit}",
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        where=Where(column=column),
        expected=expected,
        found=found,
        count=count,
    )


def implied_prefix_lens(context: StepContext) -> Int64 | None:
    """Prefix lengths of the captured batch as ``seq_lens`` records them, if they differ from the true ones."""
    recorded = context.step.inputs.seq_lens
    if recorded is None or len(recorded) != len(context.oracle.prefix_lens):
        return None
    return None if np.array_equal(recorded, context.oracle.prefix_lens) else recorded
