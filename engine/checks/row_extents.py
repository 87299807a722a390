"""I1: every array agrees about how many rows each request has.

Covered: ``qo_indptr``, ``max_extend_len`` and the lengths of the per-row arrays against the rows that the trees and
the budget imply. ``num_draft_tokens`` that nothing has used yet is latent.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences
from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.step import Int64

PER_ROW = ("input_ids", "positions", "out_cache_loc")


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding for the whole step at most."""
    wrong = {name: pair for name, pair in _numbers(context).items() if not np.array_equal(*pair)}
    if not wrong:
        yield from _latent_width(spec, context)
        return
    width = used_width(context)
    where, cells = addressed_difference(context)
    name, (found, expected) = next(iter(wrong.items()))
    explained = width is not None and set(wrong) <= {"qo_indptr", "max_extend_len"}
    diagnosis = "width-mismatch" if explained else "rows-unaccounted"
    yield spec.finding(
        context,
        None,
        diagnosis,
        _message(context, name, found, expected, width if explained else None, where),
        hint=_hint(context, width) if explained else f"differs: {', '.join(wrong)}",
        effect=Effect.OUTPUT,
        where=where,
        expected=_plain(expected),
        found=_plain(found),
        count=cells or sum(count_differences(*pair) for pair in wrong.values()),
    )


def _numbers(context: StepContext) -> dict[str, tuple[Int64, Int64]]:
    """``name -> (found, expected)`` of everything that counts rows and was recorded."""
    inputs, geometry = context.step.inputs, context.oracle.geometry
    total = int(geometry.qo_indptr[-1])
    pairs: dict[str, tuple[Int64, Int64]] = {}
    if inputs.qo_indptr is not None:
        pairs["qo_indptr"] = (inputs.qo_indptr, geometry.qo_indptr)
    if inputs.max_extend_len is not None:
        pairs["max_extend_len"] = (
            np.array([inputs.max_extend_len]),
            geometry.q_lens.max(keepdims=True),
        )
    for name in PER_ROW:
        array = getattr(inputs, name)
        if array is not None:
            pairs[f"len({name})"] = (np.array([len(array)]), np.array([total]))
    return pairs


def used_width(context: StepContext) -> int | None:
    """The one width that the row extents were made with, if it is another one than the rows sent."""
    inputs, q_lens = context.step.inputs, context.oracle.q_lens
    candidates = {inputs.max_extend_len} if inputs.max_extend_len is not None else set()
    if inputs.qo_indptr is not None and len(inputs.qo_indptr) == len(q_lens) + 1:
        steps = set(np.diff(inputs.qo_indptr).tolist())
        if inputs.qo_indptr[0] != 0 or len(steps) != 1:
            return None
        candidates |= steps
    wrong = [width for width in candidates if (q_lens != width).any() and width > 0]
    return wrong[0] if len(wrong) == 1 and len(set(q_lens.tolist())) == 1 else None


def owner_of(context: StepContext, width: int) -> str:
    """Whose variable a width is."""
    config = context.step.config
    if config.num_draft_tokens == width:
        also = " = block_size" if config.block_size == width else ""
        return f"`num_draft_tokens`{also}"
    return "`block_size`" if config.block_size == width else "no recorded setting"


def addressed_difference(context: StepContext) -> tuple[Where, int]:
    """First cell in which the addressed mask differs from the intended one, and the number of such cells."""
    if not context.can_address():
        return Where(), 0
    found = [(i, context.difference(context.addressed[i], i)) for i in context.readable]
    listed = [cell for i, d in found for cell in (context.locate(i, d).cells or ())]
    for request, difference in found:
        if len(difference.cells):
            where = context.locate(request, difference)
            return Where(
                where.node, where.row, where.column, None, where.byte, tuple(listed[:64])
            ), sum(len(d.cells) for _, d in found)
    return Where(), 0


def _message(
    context: StepContext, name: str, found: Int64, expected: Int64, width: int | None, where: Where
) -> str:
    if width is None:
        return f"{name} is {_plain(found)}, should be {_plain(expected)}"
    rows = int(context.oracle.q_lens[0])
    owner = owner_of(context, width)
    head = f"width {width} ({owner}) used for {rows} rows"
    return f"{head}: {_rows_hit(context)}" if where.row is not None else head


def _rows_hit(context: StepContext) -> str:
    """Which rows read the wrong cells and which are never written."""
    shifted, unwritten = set(), set()
    for i in context.readable:
        first = int(context.oracle.geometry.qo_indptr[i])
        covered = (context.addressed[i].cells >= 0).any(axis=1)
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


def _hint(context: StepContext, width: int | None) -> str:
    if width is None:
        return ""
    rows = int(context.oracle.q_lens[0])
    return (
        f"The attention backend laid out {width} rows a request, the step sent {rows} (budget + 1). Set the target "
        f"backend's width to {rows}; the drafter's stays block size."
    )


def _latent_width(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """``num_draft_tokens`` that no array has used yet."""
    width, config = context.step.config.num_draft_tokens, context.step.config
    if width is None or not context.oracle.is_static or config.budget is None:
        return
    if width != config.budget + 1:
        yield spec.finding(
            context,
            None,
            "width-mismatch",
            f"`num_draft_tokens` is {width}, budget + 1 is {config.budget + 1}; every array is right so far",
            hint="Whatever derives its extents from `num_draft_tokens` next will be wrong.",
            effect=Effect.LATENT,
            verdict=Verdict.LATENT,
            expected=config.budget + 1,
            found=width,
            count=1,
        )


def _plain(numbers: Int64) -> list[int] | int:
    return int(numbers[0]) if len(numbers) == 1 else [int(n) for n in numbers]
