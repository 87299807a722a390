"""I9: every row of a real node sees something, and its logits are numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.blast_radius import cause_of_rows
from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.checks.logit_rows import flat_rows, not_finite_rows
from engine.layout import VISIBLE

HINTS = {
    "empty-row": "Softmax over nothing is 0 / 0: the row becomes NaN, or whatever the kernel writes instead.",
    "non-finite-logits": "A NaN spreads to every row that attends to it, and stays in the cache once committed.",
    "live-rows": "Logits of exactly zero come from a row that nothing was written to.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most; the first that applies in the order of the diagnoses."""
    for request in context.readable:
        for diagnosis, rows in (
            ("empty-row", _empty(context, request)),
            ("non-finite-logits", _not_finite(context, request)),
            ("live-rows", _flat(context, request)),
        ):
            if rows:
                yield _finding(spec, context, request, diagnosis, rows)
                break


def _finding(
    spec: Spec, context: StepContext, request: int, diagnosis: str, rows: list[int]
) -> Finding:
    start = context.oracle.rows(request).start
    text = {
        "empty-row": "sees nothing, not even itself",
        "non-finite-logits": "has logits that are not finite",
        "live-rows": "has two best logits of exactly zero",
    }[diagnosis]
    more = f" ({len(rows)} rows)" if len(rows) > 1 else ""
    cause = "I8" if diagnosis == "empty-row" else _cause(context, request, rows)
    return spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.rid(request)}, row {rows[0]} (node {rows[0] - start}) {text}{more}",
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        where=Where(node=rows[0] - start, row=rows[0]),
        expected=1 if diagnosis == "empty-row" else True,
        found=0 if diagnosis == "empty-row" else False,
        count=len(rows),
        consequence_of=cause,
    )


def _cause(context: StepContext, request: int, rows: list[int]) -> str | None:
    """A fault that reaches these rows, or one that left the request's cache wrong."""
    damage = context.damaged.get(context.rid(request))
    return cause_of_rows(context, request, rows) or (None if damage is None else damage.check)


def _empty(context: StepContext, request: int) -> list[int]:
    """Rows of the built mask without a visible cell; a backend that never reads prefix columns sees the prefix."""
    if context.step.inputs.custom_mask is None:
        return []
    rows, prefix_len = context.oracle.real_rows(request), int(context.oracle.prefix_lens[request])
    if prefix_len > 0 and not context.oracle.reads_prefix():
        return []
    if context.surely_intended(request):  # every node sees itself
        return []
    sees = (context.built[request].cells[: len(rows)] == VISIBLE).any(axis=1)
    return [rows.start + int(row) for row in np.flatnonzero(~sees)]


def _not_finite(context: StepContext, request: int) -> list[int]:
    rows = context.oracle.real_rows(request)
    return [row for row in not_finite_rows(context) if row in rows]


def _flat(context: StepContext, request: int) -> list[int]:
    """Rows whose two best logits are both exactly zero, and not in plain decoding: they were never computed."""
    rows = context.oracle.real_rows(request)
    return [row for row in flat_rows(context) if row in rows]
