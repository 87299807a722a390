"""I10: a node's position is the prefix length plus its depth; siblings share one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, same
from engine.checks.finding import Effect, Finding, Where
from engine.step import Int64

HINTS = {
    "flattened-positions": "Positions count rows: prefix length + row number in every row. Use the depth.",
    "constant-offset": "Every position of the request is off by the same number: the prefix length they were made "
    "from is wrong.",
    "position": "",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    found = context.step.inputs.positions
    assert found is not None
    for request in context.readable:
        rows = context.oracle.real_rows(request)
        mine = found[rows.start : rows.stop]
        expected = context.oracle.positions(request)[: len(mine)]
        if not same(mine, expected):
            wrong = np.flatnonzero(mine != expected)
            yield _finding(spec, context, request, mine, expected, wrong)


def _finding(
    spec: Spec, context: StepContext, request: int, found: Int64, expected: Int64, wrong: Int64
) -> Finding:
    node, prefix_len = int(wrong[0]), int(context.oracle.prefix_lens[request])
    row = context.oracle.real_rows(request).start + node
    depth = int(context.oracle.trees[request].depths[node])
    diagnosis = _diagnose(found, expected, prefix_len)
    return spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.rid(request)}, row {row} (node {node}): position {int(found[node])}, "
        f"should be {int(expected[node])} = prefix {prefix_len} + depth {depth}",
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        where=Where(node=node, row=row),
        expected=int(expected[node]),
        found=int(found[node]),
        count=len(wrong),
        consequence_of="I3" if _follows_seq_len(context, request, found) else None,
    )


def _follows_seq_len(context: StepContext, request: int, found: Int64) -> bool:
    """Whether the positions are exactly those of the recorded ``seq_lens``, if that is wrong."""
    recorded = context.step.inputs.seq_lens
    if recorded is None or request >= len(recorded):
        return False
    depths = context.oracle.trees[request].depths[: len(found)]
    return np.array_equal(found, recorded[request] + depths)


def _diagnose(found: Int64, expected: Int64, prefix_len: int) -> str:
    if np.array_equal(found, prefix_len + np.arange(len(found))):
        return "flattened-positions"
    offsets = found - expected
    return "constant-offset" if len(set(offsets.tolist())) == 1 else "position"
