"""I4: ``mask_indptr`` says where each request's cells begin, and the buffer is long enough."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding
from engine.checks.row_extents import addressed_difference, owner_of, used_width
from engine.layout import indptr
from engine.step import Int64


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding for the whole step at most: wrong extents, or else a buffer that ends too early."""
    found = context.step.inputs.mask_indptr
    expected = context.oracle.geometry.mask_indptr
    if found is not None and not np.array_equal(found, expected):
        yield _extents(spec, context, found, expected)
    else:
        yield from _too_short(spec, context, expected)


def _extents(spec: Spec, context: StepContext, found: Int64, expected: Int64) -> Finding:
    entry = first_difference(found, expected)
    assert entry is not None
    width = _width(context, found)
    diagnosis, hint = "mask-extent", ""
    if width is not None:
        diagnosis = "width-mismatch"
        hint = f"Offsets equal those of {width} rows a request ({owner_of(context, width)}) in every entry."
    elif np.array_equal(found, _prefix_only(context)):
        diagnosis = "prefix-only-width"
        hint = "Offsets equal those of rows that hold the prefix columns alone, without the tree's."
    where, cells = addressed_difference(context)
    follows = width is not None and width == used_width(context)
    return spec.finding(
        context,
        None,
        diagnosis,
        _message(context, entry, found, expected, width),
        hint=hint,
        effect=Effect.OUTPUT,
        where=where,
        expected=[int(n) for n in expected],
        found=[int(n) for n in found],
        count=cells or count_differences(found, expected),
        consequence_of="I1" if follows else None,
    )


def _message(
    context: StepContext, entry: int, found: Int64, expected: Int64, width: int | None
) -> str:
    value = str(int(found[entry])) if entry < len(found) else "missing"
    should = str(int(expected[entry])) if entry < len(expected) else "absent"
    text = f"mask_indptr[{entry}] is {value}, should be {should}"
    if width is None or entry == 0:
        return text
    rows, prefix_len = int(context.oracle.q_lens[0]), int(context.oracle.prefix_lens[0])
    return f"{text}: stride {prefix_len + width}, should be {prefix_len + rows}"


def _width(context: StepContext, found: Int64) -> int | None:
    """The width that gives exactly these offsets, other than the rows sent."""
    geometry = context.oracle.geometry
    config = context.step.config
    candidates = [config.num_draft_tokens, config.block_size, used_width(context), config.budget]
    for width in dict.fromkeys(w for w in candidates if w is not None and w > 0):
        columns = geometry.mask_columns_before_tree + width
        if np.array_equal(found, indptr(width * columns)):
            return width
    return None


def _prefix_only(context: StepContext) -> Int64:
    geometry = context.oracle.geometry
    return indptr(geometry.q_lens * geometry.prefix_lens)


def _too_short(spec: Spec, context: StepContext, expected: Int64) -> Iterable[Finding]:
    buffer, geometry = context.step.inputs.custom_mask, context.oracle.geometry
    if buffer is None:
        return
    live = context.step.raw_bs
    ends = geometry.byte_indptr if geometry.bits else geometry.mask_indptr
    unit = "bytes" if geometry.bits else "cells"
    if len(buffer) < int(ends[live]):
        yield spec.finding(
            context,
            None,
            "mask-shorter-than-indptr",
            f"custom_mask holds {len(buffer)} {unit}, mask_indptr reaches {int(ends[live])}: "
            "the kernel reads past its end",
            effect=Effect.CRASH,
            expected=int(ends[live]),
            found=len(buffer),
            count=int(ends[live]) - len(buffer),
        )
