"""I7: the tree is a tree: rooted, acyclic, parents first, distinct siblings, within the block, best first."""

from __future__ import annotations

from collections.abc import Iterable
from operator import lt

import numpy as np

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.tree import DraftTree


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most; the first that applies in the order of the diagnoses."""
    for request in context.requests:
        for part in (_cycle_or_orphan, _duplicate_sibling, _too_deep, _weights, _order):
            found = part(spec, context, request)
            if found is not None:
                yield found
                break


def _cycle_or_orphan(spec: Spec, context: StepContext, request: int) -> Finding | None:
    tree = context.oracle.trees[request]
    if context.well_formed[request] and tree.parents[0] == -1:
        return None
    nodes = np.arange(tree.num_nodes)
    improper = (tree.parents < 0) | (tree.parents >= nodes)
    wrong = np.flatnonzero(improper & (tree.depths < 0) & (nodes > 0)).tolist()
    if tree.parents[0] != -1:
        wrong.insert(0, 0)
    if not wrong:
        return None
    node, parent = wrong[0], int(tree.parents[wrong[0]])
    rule = "the root has none (-1)" if node == 0 else "it never reaches the root"
    return spec.finding(
        context,
        request,
        "cycle-or-orphan",
        f"request {context.rid(request)}: node {node} has parent {parent}, {rule}",
        hint="A walk over its ancestors does not end, or leaves the request's rows.",
        effect=Effect.HANG,
        where=Where(node=node),
        expected=-1 if node == 0 else f"a node in 0 … {node - 1}",
        found=parent,
        count=len(wrong),
    )


def _duplicate_sibling(spec: Spec, context: StepContext, request: int) -> Finding | None:
    tree = context.oracle.trees[request]
    if context.step.requests[request].tree.tokens is None:
        return None
    pairs = zip(tree.parents.tolist(), tree.tokens.tolist(), strict=False)
    if len(set(pairs)) == tree.num_nodes:
        return None
    hidden = [node for below in tree.children for node in _repeated(tree, below)]
    if not hidden:
        return None
    node = min(hidden)
    token = int(tree.tokens[node])
    return spec.finding(
        context,
        request,
        "duplicate-sibling",
        f"request {context.rid(request)}: node {node} repeats token {token} of an earlier child "
        f"of node {int(tree.parents[node])}: the walk can never reach it",
        effect=Effect.ACCEPTANCE,
        where=Where(node=node),
        expected="distinct tokens among siblings",
        found=token,
        count=len(hidden),
    )


def _repeated(tree: DraftTree, siblings: tuple[int, ...]) -> list[int]:
    seen: set[int] = set()
    again = []
    for node in siblings:
        token = int(tree.tokens[node])
        if token in seen:
            again.append(node)
        seen.add(token)
    return again


def _too_deep(spec: Spec, context: StepContext, request: int) -> Finding | None:
    tree, block = context.oracle.trees[request], context.step.config.block_size
    if block is None or tree.height <= block - 1:
        return None
    deep = np.flatnonzero(tree.depths > block - 1)
    node = int(deep[0])
    return spec.finding(
        context,
        request,
        "too-deep",
        f"request {context.rid(request)}: node {node} has depth {int(tree.depths[node])}; "
        f"a block of {block} drafts {block - 1} positions",
        effect=Effect.HANG,
        where=Where(node=node),
        expected=block - 1,
        found=int(tree.depths[node]),
        count=len(deep),
    )


def _weights(spec: Spec, context: StepContext, request: int) -> Finding | None:
    weights = context.oracle.trees[request].log_weights
    if weights is None or np.count_nonzero(weights[1:] <= weights[:-1]) == len(weights) - 1:
        return None
    known = np.flatnonzero(~np.isnan(weights))
    rises = np.flatnonzero(weights[known][1:] > weights[known][:-1])
    if len(rises) == 0:
        return None
    before, node = map(int, known[rises[0] : rises[0] + 2])
    return spec.finding(
        context,
        request,
        "weights-not-sorted",
        f"request {context.rid(request)}: node {node} has log-weight {weights[node]:.4g}, "
        f"node {before} before it {weights[before]:.4g}: "
        "nodes are not in order of probability",
        hint="The budget was not spent on the most probable prefixes.",
        effect=Effect.ACCEPTANCE,
        where=Where(node=node),
        expected=f"at most {weights[before]:.6g}",
        found=float(weights[node]),
        count=len(rises),
    )


def _order(spec: Spec, context: StepContext, request: int) -> Finding | None:
    tree = context.oracle.trees[request]
    if all(map(lt, tree.parents[1:].tolist(), range(1, tree.num_nodes))):
        return None
    late = np.flatnonzero(tree.parents[1:] >= np.arange(1, tree.num_nodes)) + 1
    node = int(late[0])
    return spec.finding(
        context,
        request,
        "tree-form",
        f"request {context.rid(request)}: node {node} comes before its parent {int(tree.parents[node])}",
        hint="In-place compaction and masks that copy the parent's row need parents first.",
        effect=Effect.HANG,
        where=Where(node=node),
        expected=f"a node in 0 … {node - 1}",
        found=int(tree.parents[node]),
        count=len(late),
    )
