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
from engine.layout import UNREAD


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    for request in context.readable:
        difference = context.difference(context.built[request], request)
        if len(difference.cells):
            yield _finding(spec, context, request, difference)


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
        consequence_of="I4" if bool((difference.found == UNREAD).all()) else None,
    )


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
        verb = f"sees {target}, which is not its ancestor"
    rows = len(np.unique(difference.cells[:, 0]))
    more = f" ({len(difference.cells)} cells in {rows} rows)" if len(difference.cells) > 1 else ""
    rid = context.step.requests[request].rid
    return f"request {rid}, row {first_row + row} (node {row}) {verb}{more}"


def column_name(column: int, prefix_len: int, num_nodes: int) -> str:
    """What a mask column stands for, in words."""
    if column < prefix_len:
        return f"prefix position {column}"
    node = column - prefix_len
    return f"node {node}" if node < num_nodes else f"padding row {node}"
