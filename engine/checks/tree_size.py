"""I2: the tree that was verified is the tree that was built: its size, its rows, its tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most; the first that applies in the order of the diagnoses."""
    for request in context.requests:
        for part in (_counted, _over_budget, _tokens, _rows):
            found = part(spec, context, request)
            if found is not None:
                yield found
                break


def _counted(spec: Spec, context: StepContext, request: int) -> Finding | None:
    record, tree = context.step.requests[request], context.oracle.trees[request]
    counted = record.counted_nodes
    if counted is None or counted == tree.num_nodes:
        return None
    nonzero = int(np.count_nonzero(tree.tokens[1:])) + 1  # the root is counted whatever it holds
    from_tokens = record.tree.tokens is not None and counted in (
        nonzero,
        int(np.count_nonzero(tree.tokens)),
    )
    zeros = np.flatnonzero(tree.tokens == 0) if from_tokens else np.array([], np.int64)
    first_zero = (
        int(zeros[zeros > 0][0] if counted == nonzero else zeros[0]) if from_tokens else None
    )
    return spec.finding(
        context,
        request,
        "tree-size-from-tokens" if from_tokens else "tree-size",
        f"request {record.rid}: tree counted as {counted} nodes, has {tree.num_nodes}"
        + (f"; node {first_zero} holds token id 0, which is a legal token" if from_tokens else ""),
        hint="Take the size from the builder's parents, never from token values."
        if from_tokens
        else "",
        effect=Effect.ACCEPTANCE,
        where=Where(node=first_zero),
        expected=tree.num_nodes,
        found=counted,
        count=abs(tree.num_nodes - counted),
    )


def _over_budget(spec: Spec, context: StepContext, request: int) -> Finding | None:
    tree, budget = context.oracle.trees[request], context.step.config.budget
    if budget is None or not context.oracle.is_static or tree.num_nodes <= budget + 1:
        return None
    return spec.finding(
        context,
        request,
        "over-budget",
        f"request {context.rid(request)}: {tree.num_nodes} nodes in {budget + 1} rows "
        "(budget + 1): nodes past the last row are never verified",
        effect=Effect.ACCEPTANCE,
        where=Where(node=budget + 1),
        expected=budget + 1,
        found=tree.num_nodes,
        count=tree.num_nodes - budget - 1,
    )


def _tokens(spec: Spec, context: StepContext, request: int) -> Finding | None:
    ids, tree = context.step.inputs.input_ids, context.oracle.trees[request]
    if ids is None or context.step.requests[request].tree.tokens is None or not context.rows_known:
        return None
    rows = context.oracle.real_rows(request)
    found = ids[rows.start : rows.stop]
    expected = tree.tokens[: len(found)]
    node = first_difference(found, expected)
    if node is None:
        return None
    return spec.finding(
        context,
        request,
        "tokens-differ",
        f"request {context.rid(request)}, row {rows.start + node}: input_ids holds token {int(found[node])}, "
        f"node {node} of the tree is token {int(tree.tokens[node])}",
        effect=Effect.OUTPUT,
        where=Where(node=node, row=rows.start + node),
        expected=int(tree.tokens[node]),
        found=int(found[node]),
        count=count_differences(found, expected),
    )


def _rows(spec: Spec, context: StepContext, request: int) -> Finding | None:
    """Ragged only: a row for each node."""
    indptr, tree = context.step.inputs.qo_indptr, context.oracle.trees[request]
    if indptr is None or context.oracle.is_static or request + 1 >= len(indptr):
        return None
    rows = int(indptr[request + 1] - indptr[request])
    if rows == tree.num_nodes or context.step.config.verify_rows != "ragged":
        return None
    true = context.oracle.geometry.qo_indptr
    shifted = indptr[request] != true[request] and indptr[request + 1] == true[request + 1]
    return spec.finding(
        context,
        request,
        "tree-size",
        f"request {context.rid(request)}: {rows} rows for {tree.num_nodes} nodes",
        effect=Effect.ACCEPTANCE,
        expected=tree.num_nodes,
        found=rows,
        count=abs(rows - tree.num_nodes),
        consequence_of="I2" if shifted and request > 0 else None,
    )
