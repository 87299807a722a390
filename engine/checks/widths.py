"""Widths: how many rows a request was taken to have, by whose variable, and what that does to the mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.checks.context import MAX_CELLS, StepContext
from engine.checks.finding import Where


@dataclass(frozen=True)
class Width:
    """Rows a request as the backend believes, and as the step sent them (first request that differs)."""

    used: int
    sent: int


def row_width(context: StepContext) -> Width | None:
    """The one width that ``qo_indptr`` and ``max_extend_len`` were made with, if it is not that of the rows sent.

    A single request whose extent is off is no width yet: the number has to be somebody's, or to be used twice.
    """
    q_lens, used = context.oracle.q_lens, used_width(context)
    if used is None or not len(q_lens):
        return None
    indptr, longest = context.step.inputs.qo_indptr, context.step.inputs.max_extend_len
    twice = len(q_lens) > 1 or (indptr is not None and longest == used)
    if not twice and owner_of(context, used) == NOBODY:
        return None
    return Width(used, int(q_lens[q_lens != used][0]))


def used_width(context: StepContext) -> int | None:
    """The width that every row extent which is not right equals; None if there is no such number."""
    inputs, q_lens = context.step.inputs, context.oracle.q_lens
    if not len(q_lens):
        return None
    wrong = set()
    if inputs.qo_indptr is not None and not np.array_equal(
        inputs.qo_indptr, context.oracle.geometry.qo_indptr
    ):
        steps = np.diff(inputs.qo_indptr)
        if len(steps) != len(q_lens) or inputs.qo_indptr[0] != 0:
            return None
        wrong |= set(steps.tolist())
    if inputs.max_extend_len is not None and inputs.max_extend_len != q_lens.max():
        wrong.add(inputs.max_extend_len)
    width = wrong.pop() if len(wrong) == 1 else 0
    return width if width > 0 and bool((q_lens != width).any()) else None


NOBODY = "no recorded setting"


def owner_of(context: StepContext, width: int) -> str:
    """Whose variable a width is."""
    config = context.step.config
    if config.num_draft_tokens == width:
        also = " = block_size" if config.block_size == width else ""
        return f"`num_draft_tokens`{also}"
    if config.block_size == width:
        return "`block_size`"
    return "`budget`" if config.budget == width else NOBODY


def addressed_difference(context: StepContext) -> tuple[Where, int]:
    """First cell in which the addressed mask differs from the intended one, and the number of such cells."""
    if not context.can_address():
        return Where(), 0
    found = [(i, context.difference(context.addressed[i], i)) for i in context.readable]
    found = [(i, difference) for i, difference in found if len(difference.cells)]
    if not found:
        return Where(), 0
    places = [context.locate(i, difference) for i, difference in found]
    listed = tuple(cell for place in places for cell in place.cells or ())[:MAX_CELLS]
    first = places[0]
    where = Where(first.node, first.row, first.column, None, first.byte, listed)
    return where, sum(len(difference.cells) for _, difference in found)
