"""I1: every array agrees about how many rows each request has.

Covered: ``qo_indptr``, ``max_extend_len`` and the lengths of the per-row arrays. Static rows: budget + 1 a request.
Ragged rows, or rows that nothing recorded tells: only that the lengths agree with each other; whether each request has
a row per node is then I2's. ``num_draft_tokens`` that nothing has used yet is latent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference, same
from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.checks.widths import Width, addressed_difference, owner_of, row_width
from engine.step import Int64

PER_ROW = ("input_ids", "positions", "out_cache_loc")
Numbers = dict[str, tuple[Int64, Int64]]  # name -> (found, expected)


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding for the whole step at most."""
    wrong = {name: pair for name, pair in _numbers(context).items() if not same(*pair)}
    if not wrong:
        yield from _latent_width(spec, context)
        return
    width = row_width(context) if set(wrong) <= {"qo_indptr", "max_extend_len"} else None
    where, cells = addressed_difference(context)
    count = cells or sum(count_differences(*pair) for pair in wrong.values())
    if width is not None:
        yield _width_mismatch(spec, context, width, where, count)
    else:
        yield _unaccounted(spec, context, wrong, where, count)


def _width_mismatch(
    spec: Spec, context: StepContext, width: Width, where: Where, count: int
) -> Finding:
    head = f"width {width.used} ({owner_of(context, width.used)}) used for {width.sent} rows"
    return spec.finding(
        context,
        None,
        "width-mismatch",
        f"{head}: {_rows_hit(context)}" if where.row is not None else head,
        hint=f"The attention backend laid out {width.used} rows a request, the step sent {width.sent}"
        f"{' (budget + 1)' if context.oracle.is_static else ''}. Set the target backend's width to {width.sent}; "
        "the drafter's stays block size.",
        effect=Effect.OUTPUT,
        where=where,
        expected=width.sent,
        found=width.used,
        count=count,
    )


def _unaccounted(
    spec: Spec, context: StepContext, wrong: Numbers, where: Where, count: int
) -> Finding:
    name, (found, expected) = next(iter(wrong.items()))
    at = first_difference(found, expected)
    assert at is not None
    have, want = entry(found, at), entry(expected, at)
    place = f"{name}[{at}]" if name == "qo_indptr" else name
    return spec.finding(
        context,
        None,
        "rows-unaccounted",
        f"{place} is {plain(have)}, should be {plain(want)}",
        hint=f"differs: {', '.join(wrong)}",
        effect=Effect.OUTPUT,
        where=where,
        expected=want,
        found=have,
        count=count,
    )


def entry(array: Int64, at: int) -> int | None:
    """One entry, None past the end."""
    return int(array[at]) if at < len(array) else None


def plain(value: int | None) -> str:
    """An entry in words."""
    return "absent" if value is None else str(value)


def _numbers(context: StepContext) -> Numbers:
    """Everything that counts rows and was recorded, beside what it should be."""
    inputs = context.step.inputs
    lengths = {
        f"len({name})": len(array)
        for name in PER_ROW
        if (array := getattr(inputs, name)) is not None
    }
    expected = _expected_indptr(context, list(lengths.values()))
    pairs: Numbers = {}
    if inputs.qo_indptr is not None:
        pairs["qo_indptr"] = (inputs.qo_indptr, expected)
    longest = _longest(context, expected)
    if not context.oracle.is_static and inputs.max_extend_len == _longest(
        context, context.oracle.geometry.qo_indptr
    ):
        longest = inputs.max_extend_len  # who lays out other rows is I2's
    if inputs.max_extend_len is not None and longest is not None:
        pairs["max_extend_len"] = (np.array([inputs.max_extend_len]), np.array([longest]))
    total = expected[-1:]
    return pairs | {name: (np.array([length], np.int64), total) for name, length in lengths.items()}


def _expected_indptr(context: StepContext, lengths: list[int]) -> Int64:
    """Row extents: what the budget asks, or what most of the recorded lengths agree on."""
    true, found = context.oracle.geometry.qo_indptr, context.step.inputs.qo_indptr
    if context.oracle.is_static:
        return true
    proper = (
        found is not None
        and len(found) == len(true)
        and found[0] == 0
        and bool((np.diff(found) >= 0).all())
    )
    votes = Counter(lengths + ([int(found[-1])] if found is not None and proper else []))
    if not votes:
        return true
    total = max(votes, key=lambda total: (votes[total], total == true[-1]))
    if found is not None and proper and total == found[-1]:
        return found
    return true if total == true[-1] else np.append(true[:-1], total)


def _longest(context: StepContext, expected: Int64) -> int | None:
    """Rows of the longest request, None where nothing tells."""
    if not context.oracle.is_static and context.step.inputs.qo_indptr is None:
        return None
    ends: list[int] = expected.tolist()
    return max((end - start for start, end in pairwise(ends)), default=None)


def _rows_hit(context: StepContext) -> str:
    """Which rows read the wrong cells and which are never written."""
    shifted: set[int] = set()
    unwritten: set[int] = set()
    for i in context.readable:
        first = int(context.oracle.geometry.qo_indptr[i])
        covered = np.any(context.addressed[i].cells >= 0, axis=1)
        difference = context.difference(context.addressed[i], i)
        for row in np.unique(difference.cells[:, 0]).tolist():
            (shifted if covered[row] else unwritten).add(first + row)
        unwritten |= {first + int(row) for row in np.flatnonzero(~covered)}
    parts = []
    if shifted:
        parts.append(f"rows {ranges(shifted)} read shifted cells")
    if unwritten:
        parts.append(f"rows {ranges(unwritten)} are never written")
    return ", ".join(parts)


def ranges(numbers: Iterable[int]) -> str:
    """``{1, 2, 3, 7}`` as ``1-3, 7``."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _latent_width(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """``num_draft_tokens`` that no array has used yet."""
    config, offsets = context.step.config, context.step.inputs.mask_indptr
    width, budget = config.num_draft_tokens, config.budget
    if width is None or budget is None or width == budget + 1:
        return
    if offsets is not None and not np.array_equal(offsets, context.oracle.geometry.mask_indptr):
        return  # used: I4's
    yield spec.finding(
        context,
        None,
        "width-mismatch",
        f"`num_draft_tokens` is {width}, budget + 1 is {budget + 1}; every array is right so far",
        hint="Whatever derives its extents from `num_draft_tokens` next will be wrong.",
        effect=Effect.LATENT,
        verdict=Verdict.LATENT,
        expected=budget + 1,
        found=width,
        count=1,
    )
