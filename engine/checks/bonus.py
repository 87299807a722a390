"""I14: accepted rows lie in their request, and the bonus is what the last accepted row predicts."""

from __future__ import annotations

from collections.abc import Iterable

from engine.checks.acceptance import recorded_nodes
from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most: a range fault, or else a wrong bonus."""
    accepted = context.step.outcome.accept_index
    assert accepted is not None
    for request in context.readable:
        if request >= len(accepted):
            continue
        outside = _outside(context, request)
        if outside is not None:
            yield _range(spec, context, request, *outside)
        else:
            yield from _bonus(spec, context, request)


def _outside(context: StepContext, request: int) -> tuple[int, int] | None:
    """``(entry, row)`` of the first accepted row outside the request's rows; entry 0 missing counts as row -1."""
    accepted = context.step.outcome.accept_index
    assert accepted is not None
    rows = context.oracle.rows(request)
    ended = False
    for entry, row in enumerate(map(int, accepted[request])):
        if row == -1 and entry > 0:
            ended = True
        elif ended or row not in rows:
            return entry, row
    return None if len(accepted[request]) else (0, -1)


def _range(spec: Spec, context: StepContext, request: int, entry: int, row: int) -> Finding:
    rows = context.oracle.rows(request)
    return spec.finding(
        context,
        request,
        "accept-index-range",
        f"request {context.step.requests[request].rid}: accept_index[{entry}] is {row}, "
        f"its rows are {rows.start} … {rows.stop - 1}",
        hint="Row ids are flat: request start + node, padded with -1 at the end only.",
        effect=Effect.CRASH,
        where=Where(row=row),
        expected=f"{rows.start} … {rows.stop - 1}",
        found=row,
        count=1,
    )


def _bonus(spec: Spec, context: StepContext, request: int) -> Iterable[Finding]:
    outcome = context.step.outcome
    nodes = recorded_nodes(context, request)
    if outcome.bonus_tokens is None or outcome.target_predict is None or nodes is None:
        return
    row = context.oracle.rows(request).start + nodes[-1]
    if request >= len(outcome.bonus_tokens) or row >= len(outcome.target_predict):
        return
    expected, found = int(outcome.target_predict[row]), int(outcome.bonus_tokens[request])
    if expected == found:
        return
    stride = _stride_read(context, request, len(nodes), found)
    yield spec.finding(
        context,
        request,
        "bonus" if stride is None else "bonus-stride",
        f"request {context.step.requests[request].rid}: bonus is token {found}, row {row} "
        f"(node {nodes[-1]}, the last accepted) predicts {expected}",
        hint="" if stride is None else stride,
        effect=Effect.OUTPUT,
        where=Where(node=nodes[-1], row=row),
        expected=expected,
        found=found,
        count=1,
    )


def _stride_read(context: StepContext, request: int, length: int, found: int) -> str | None:
    """The wrong stride that yields exactly the recorded bonus, in words."""
    compacted, config = context.step.outcome.predict_compacted, context.step.config
    widths = [config.num_draft_tokens, config.block_size, int(context.oracle.q_lens[request])]
    if config.budget is not None:
        widths.append(config.budget + 1)
    if compacted is not None:
        tries = [(w, compacted.values, compacted.row_width) for w in widths if w is not None]
    else:
        predict = context.step.outcome.target_predict
        assert predict is not None
        tries = [(w, predict, int(context.oracle.q_lens[request])) for w in widths if w is not None]
    for width, values, right in tries:
        place = request * width + length - 1
        if width != right and 0 <= place < len(values) and int(values[place]) == found:
            return f"Reading request {request} at stride {width} instead of {right} gives exactly this token."
    return None
