"""I14: accepted rows lie in their request, and the bonus is what the last accepted row predicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.checks.paths import kept_paths, outside, recorded_nodes
from engine.step import Int64


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most: a range fault, or else a wrong bonus."""
    for request in context.readable:
        place = outside(context, request)
        if place is not None:
            yield _range(spec, context, request, *place)
        else:
            yield from _bonus(spec, context, request)


def _range(spec: Spec, context: StepContext, request: int, entry: int, row: int) -> Finding:
    rows = context.oracle.rows(request)
    return spec.finding(
        context,
        request,
        "accept-index-range",
        f"request {context.rid(request)}: accept_index[{entry}] is {row}, "
        f"its rows are {rows.start} … {rows.stop - 1}",
        hint="Row ids are flat: request start + node, padded with -1 at the end only.",
        effect=Effect.CRASH,
        where=Where(row=row if row >= 0 else None),
        expected=f"{rows.start} … {rows.stop - 1}",
        found=row,
        count=1,
    )


def _bonus(spec: Spec, context: StepContext, request: int) -> Iterable[Finding]:
    bonuses, predict = context.step.outcome.bonus_tokens, context.step.outcome.target_predict
    nodes = recorded_nodes(context, request)
    if bonuses is None or predict is None or nodes is None or request >= len(bonuses):
        return
    start, found = context.oracle.rows(request).start, int(bonuses[request])
    ends = [start + path[-1] for path in kept_paths(context, request)]
    row = ends[0]
    if row >= len(predict) or found in [int(predict[end]) for end in ends if end < len(predict)]:
        return
    stride = _misread(context, request, nodes, found)
    expected = int(predict[row])
    yield spec.finding(
        context,
        request,
        "bonus" if stride is None else "bonus-stride",
        f"request {context.rid(request)}: bonus is token {found}, row {row} "
        f"(node {nodes[-1]}, the last accepted) predicts {expected}",
        hint="Not the prediction of the last accepted row." if stride is None else stride,
        effect=Effect.OUTPUT,
        where=Where(node=nodes[-1], row=row),
        expected=expected,
        found=found,
        count=1,
        consequence_of="I13" if _follows_length(context, request, nodes, predict) else None,
    )


def _follows_length(context: StepContext, request: int, nodes: list[int], predict: Int64) -> bool:
    """Whether the bonus is what the last row predicts that a wrong ``accept_length`` leaves."""
    lengths, bonuses = context.step.outcome.accept_length, context.step.outcome.bonus_tokens
    if lengths is None or bonuses is None or not 0 < int(lengths[request]) <= len(nodes):
        return False
    last = context.oracle.rows(request).start + nodes[int(lengths[request]) - 1]
    return last < len(predict) and bool(predict[last] == bonuses[request])


def _misread(context: StepContext, request: int, nodes: list[int], found: int) -> str | None:
    """The wrong address that yields exactly the recorded bonus, in words."""
    compacted, predict = context.step.outcome.predict_compacted, context.step.outcome.target_predict
    right, last = int(context.oracle.q_lens[request]), len(nodes) - 1
    if compacted is not None:
        for width in _widths(context, request):
            if (
                width != compacted.row_width
                and _at(compacted.values, request * width + last) == found
            ):
                return _stride("predict_compacted", width, compacted.row_width)
    assert predict is not None
    start = context.oracle.rows(request).start
    for width in _widths(context, request):
        if width != right and found in (
            _at(predict, request * width + last),
            _at(predict, request * width + nodes[-1]),
        ):
            return _stride("target_predict", width, right)
    if last != nodes[-1] and _at(predict, start + last) == found:
        return f"target_predict read at row {start + last}, as if accepted rows were adjacent, gives this token."
    tree = context.oracle.trees[request]
    tokens_known = context.step.requests[request].tree.tokens is not None
    accepted = [int(tree.tokens[n]) for n in nodes[1:] if n < tree.num_nodes]
    if tokens_known and found in accepted:
        return "It is an accepted token of the same request: an earlier prediction was read."
    return None


def _stride(name: str, width: int, right: int) -> str:
    return f"{name} read at stride {width} instead of {right} gives exactly this token."


def _widths(context: StepContext, request: int) -> Iterator[int]:
    """Row widths that are about in a step."""
    config, outcome = context.step.config, context.step.outcome
    yield int(context.oracle.q_lens[request])
    for width in (config.num_draft_tokens, config.block_size, config.budget):
        if width is not None:
            yield width
    if outcome.accept_index is not None:
        yield len(outcome.accept_index[request])
        yield max(int((rows >= 0).sum()) for rows in outcome.accept_index)
    yield 1 + max(int(tree.depths.max()) for tree in context.oracle.trees)
    if outcome.predict_compacted is not None:
        yield outcome.predict_compacted.row_width
        yield len(outcome.predict_compacted.values) // context.step.raw_bs


def _at(values: Int64, place: int) -> int | None:
    return int(values[place]) if 0 <= place < len(values) else None
