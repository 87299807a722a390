"""I8: the built mask equals the intended one in every row of a real node.

Covered: the buffer decoded with the true geometry. Not covered: whether the kernel addresses it rightly (I1, I4) or
reads it at all (a probe of the kernel). Each diagnosis is a hypothesis about the whole request: it is named only if it
explains every differing cell.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Difference, Spec, StepContext
from engine.checks.finding import Effect, Finding, Verdict
from engine.checks.mask_hypotheses import EXPLANATIONS, diagnose
from engine.checks.unpacking import right_at_recorded_bytes
from engine.layout import UNREAD, addressed_mask


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    for request in context.readable:
        difference = context.built_difference(request)
        if difference is not None:
            yield _finding(spec, context, request, _within_buffer(context, difference))


def _within_buffer(context: StepContext, difference: Difference) -> Difference:
    """Without the cells past the buffer's end, which are I4's, unless there are no others."""
    read = difference.found != UNREAD
    if read.all() or not read.any() or not context.has("I4", None):
        return difference
    view, cells = difference.view, difference.cells
    return Difference(view, cells[read], difference.expected[read], difference.found[read])


def _finding(spec: Spec, context: StepContext, request: int, difference: Difference) -> Finding:
    diagnosis = diagnose(context, request, difference)
    latent = _is_latent(context, request, difference)
    where = context.locate(request, difference)
    expected, found = int(difference.expected[0]), int(difference.found[0])
    return spec.finding(
        context,
        request,
        diagnosis,
        _message(context, request, difference),
        hint=EXPLANATIONS[diagnosis],
        effect=Effect.LATENT if latent else Effect.OUTPUT,
        verdict=Verdict.LATENT if latent else Verdict.FAULT,
        where=where,
        expected=expected,
        found=None if found == UNREAD else found,
        count=len(difference.cells),
        consequence_of=_explained_by(context, request, difference),
    )


def _explained_by(context: StepContext, request: int, difference: Difference) -> str | None:
    """The earlier check whose wrong value gives exactly these cells."""
    if context.packed_otherwise(request) or (
        context.has("I5", request) and right_at_recorded_bytes(context, request)
    ):
        return "I5"
    if bool((difference.found == UNREAD).all()):
        return "I4"
    counted = context.step.requests[request].counted_nodes
    if counted is not None and 0 < counted < context.oracle.num_verified(request):
        node = difference.cells[:, 1] - context.oracle.prefix_lens[request]
        if bool(((difference.cells[:, 0] >= counted) | (node >= counted)).all()):
            return "I2"
    if right_as_addressed(context, request):
        return "I1" if context.has("I1", request) else "I4"
    return None


def right_as_addressed(context: StepContext, request: int) -> bool:
    """Whether the cells are right where the wrong extents look for them: built and read alike."""
    if not (context.can_address() and (context.has("I1", request) or context.has("I4", request))):
        return False
    view = addressed_mask(context.step, context.oracle.geometry, request, reads_prefix=True)
    covered = [
        row
        for row in range(context.oracle.num_verified(request))
        if row not in view.foreign_rows and (view.bytes[row] >= 0).any()
    ]
    wrong = set(context.difference(view, request).cells[:, 0].tolist())
    return bool(covered) and not wrong & set(covered)


def _is_latent(context: StepContext, request: int, difference: Difference) -> bool:
    """Only prefix cells, and the backend takes the prefix for visible without reading it."""
    in_prefix = difference.cells[:, 1] < context.oracle.prefix_lens[request]
    return bool(in_prefix.all()) and not context.oracle.reads_prefix()


def _message(context: StepContext, request: int, difference: Difference) -> str:
    row, column = map(int, difference.cells[0])
    tree = context.oracle.trees[request]
    prefix_len = int(context.oracle.prefix_lens[request])
    first_row = int(context.oracle.geometry.qo_indptr[request])
    target = column_name(column, prefix_len, tree.num_nodes)
    if difference.found[0] == UNREAD:
        verb = f"has no cell for {target} in the buffer"
    elif difference.expected[0]:
        verb = (
            f"does not see {target}, which is its own"
            if column == prefix_len + row
            else f"does not see {target}"
        )
    else:
        verb = f"sees {target}{_why_not(context, request, row, column)}"
    rows = len(np.unique(difference.cells[:, 0]))
    more = f" ({len(difference.cells)} cells in {rows} rows)" if len(difference.cells) > 1 else ""
    rid = context.rid(request)
    return f"request {rid}, row {first_row + row} (node {row}) {verb}{more}"


def _why_not(context: StepContext, request: int, row: int, column: int) -> str:
    """Why a row may not see a column."""
    node, tree = column - int(context.oracle.prefix_lens[request]), context.oracle.trees[request]
    if node < 0 or node in tree.paths[row]:
        return ", which lies outside its sliding window"
    return ", which is not its ancestor" if node < tree.num_nodes else ""


def column_name(column: int, prefix_len: int, num_nodes: int) -> str:
    """What a mask column stands for, in words."""
    if column < prefix_len:
        return f"prefix position {column}"
    node = column - prefix_len
    return f"node {node}" if node < num_nodes else f"padding row {node}"
