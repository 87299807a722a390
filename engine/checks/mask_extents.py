"""I4: ``mask_indptr`` says where each request's cells begin, and the buffer is long enough."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.capacity import is_wrapped
from engine.checks.context import (
    MAX_CELLS,
    Spec,
    StepContext,
    count_differences,
    first_difference,
)
from engine.checks.finding import Effect, Finding, Where
from engine.checks.row_extents import entry, plain
from engine.checks.unpacking import explains_all
from engine.checks.widths import addressed_difference, owner_of, used_width
from engine.layout import indptr
from engine.step import Int64


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding for the whole step at most: wrong extents, or a buffer that ends before them."""
    found = context.step.inputs.mask_indptr
    expected = context.oracle.geometry.mask_indptr
    if found is None or np.array_equal(found, expected):
        yield from _too_short(spec, context)
    elif not is_wrapped(context, found):  # else I6's
        yield _extents(spec, context, found, expected)


def _extents(spec: Spec, context: StepContext, found: Int64, expected: Int64) -> Finding:
    at, width = first_difference(found, expected), _width(context, found)
    assert at is not None
    diagnosis, hint = "mask-extent", ""
    if width is not None:
        diagnosis = "width-mismatch"
        hint = f"Offsets equal those of {width} rows a request ({owner_of(context, width)}) in every entry."
    elif np.array_equal(found, _prefix_only(context)):
        diagnosis = "prefix-only-width"
        hint = "Offsets equal those of rows that hold the prefix columns alone, without the tree's."
    elif _ends_past_buffer(context, found, expected):
        diagnosis, hint = (
            "mask-shorter-than-indptr",
            "The kernel, or its argument check, goes past the end.",
        )
    where, cells = addressed_difference(context)
    return spec.finding(
        context,
        None,
        diagnosis,
        _message(context, at, found, expected, width),
        hint=hint,
        effect=Effect.CRASH if diagnosis == "mask-shorter-than-indptr" else Effect.OUTPUT,
        where=where,
        expected=entry(expected, at),
        found=entry(found, at),
        count=cells or count_differences(found, expected),
        consequence_of=_cause(context, found, width),
    )


def _cause(context: StepContext, found: Int64, width: int | None) -> str | None:
    """The earlier check whose wrong value gives exactly these offsets."""
    if _follows_rows(context, found, width):
        return "I1"
    return "I3" if any(np.array_equal(found, made) for made in _from_lengths(context)) else None


def _from_lengths(context: StepContext) -> list[Int64]:
    """Offsets that follow from ``seq_lens`` and from ``kv_indptr`` as recorded, where those are wrong."""
    inputs, geometry = context.step.inputs, context.oracle.geometry
    if geometry.qlen_only:
        return []
    lengths = [] if inputs.seq_lens is None else [inputs.seq_lens]
    if inputs.kv_indptr is not None and context.step.config.kv_indptr_unit != "page":
        draft = geometry.q_lens * bool(context.step.config.kv_indptr_counts_draft)
        if len(inputs.kv_indptr) == geometry.bs + 1:
            lengths.append((np.diff(inputs.kv_indptr) - draft).astype(np.int64))
    rows = geometry.q_lens
    return [indptr(rows * (length + rows)) for length in lengths if len(length) == len(rows)]


def _message(
    context: StepContext, at: int, found: Int64, expected: Int64, width: int | None
) -> str:
    text = f"mask_indptr[{at}] is {plain(entry(found, at))}, should be {plain(entry(expected, at))}"
    if width is None or at == 0:
        return text
    before = int(context.oracle.geometry.mask_columns_before_tree[at - 1])
    return (
        f"{text}: stride {before + width}, should be {before + int(context.oracle.q_lens[at - 1])}"
    )


def _width(context: StepContext, found: Int64) -> int | None:
    """The width that gives exactly these offsets, other than the rows sent."""
    config, before = context.step.config, context.oracle.geometry.mask_columns_before_tree
    candidates = [config.num_draft_tokens, config.block_size, used_width(context), config.budget]
    for width in dict.fromkeys(w for w in candidates if w is not None and w > 0):
        if np.array_equal(found, indptr(width * (before + width))):
            return width
    return None


def _follows_rows(context: StepContext, found: Int64, width: int | None) -> bool:
    """Whether the offsets are those of the row extents as recorded."""
    if width is not None and width == used_width(context):
        return True
    recorded, before = (
        context.step.inputs.qo_indptr,
        context.oracle.geometry.mask_columns_before_tree,
    )
    if recorded is None or len(recorded) != len(before) + 1:
        return False
    rows = np.diff(recorded)
    return np.array_equal(found, indptr(rows * (before + rows)))


def _prefix_only(context: StepContext) -> Int64:
    geometry = context.oracle.geometry
    return indptr(geometry.q_lens * geometry.prefix_lens)


def _ends_past_buffer(context: StepContext, found: Int64, expected: Int64) -> bool:
    """Whether only the end is wrong, and lies past the buffer's."""
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    if buffer is None or len(found) < 2 or len(found) != len(expected):
        return False
    end = int(found[-1])
    if geometry.bits:
        end = int(geometry.byte_indptr[-2]) + -(-(end - int(geometry.mask_indptr[-2])) // 8)
    return np.array_equal(found[:-1], expected[:-1]) and len(buffer) < end


def _too_short(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """The extents are right, or not recorded; the buffer ends before them."""
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    end = int((geometry.byte_indptr if geometry.bits else geometry.mask_indptr)[-1])
    if buffer is None or len(buffer) >= end or explains_all(context):
        return  # a buffer that another packing explains is I5's
    unit = "bytes" if geometry.bits else "cells"
    yield spec.finding(
        context,
        None,
        "mask-shorter-than-indptr",
        f"custom_mask holds {len(buffer)} {unit}, mask_indptr reaches {end}: the kernel reads past its end",
        effect=Effect.CRASH,
        where=_first_missing(context, len(buffer)),
        expected=end,
        found=len(buffer),
        count=end - len(buffer),
    )


def _first_missing(context: StepContext, end: int) -> Where:
    """The first cell of a real row that lies past the buffer's end."""
    for request in context.readable:
        rows = context.oracle.real_rows(request)
        missing = np.argwhere(context.intended[request].bytes[: len(rows)] >= end)
        if len(missing):
            row, column = map(int, missing[0])
            listed = tuple((rows.start + int(r), int(c)) for r, c in missing[:MAX_CELLS])
            byte = int(context.intended[request].bytes[row, column])
            return Where(row, rows.start + row, column, None, byte, listed)
    return Where()
