"""Faults of the tree itself: what its builder handed on is no tree, or not the one that a budget should buy."""

from __future__ import annotations

from collections.abc import Sequence

from engine.faults.recorded.edit import (
    accepted,
    every,
    ints,
    need,
    rows_of,
    tokens_of,
    with_config,
    with_inputs,
    with_requests,
    with_tree,
)
from engine.faults.recorded.injector import RecordedInjector
from engine.faults.recorded.numbering import renumbered
from engine.step import Request, VerifyStep
from engine.tree import DraftTree


def _lost_parent(step: VerifyStep) -> VerifyStep:
    """The parent of the last node was not found: a comparison with NaN is never true."""

    def edit(number: int, request: Request) -> Request:
        parents = [*request.tree.parents[:-1].tolist(), -1]
        return with_tree(request, parents=ints(parents))

    return with_requests(step, edit)


def _repeated_candidate(step: VerifyStep) -> VerifyStep:
    """The last node that has siblings, none of them wanted, holds the first sibling's token."""
    ids = need(step.inputs.input_ids, "inputs.input_ids").copy()

    def edit(number: int, request: Request) -> Request:
        pair = _siblings(request.tree.tree, accepted(step)[number])
        if pair is None:
            return request
        first, again = pair
        tokens = tokens_of(step, number).copy()
        tokens[again] = tokens[first]
        ids[rows_of(step, number).start + again] = tokens[first]
        return with_tree(request, tokens=tokens)

    changed = with_requests(step, edit)
    return with_inputs(changed, input_ids=ids)


def _siblings(tree: DraftTree, path: Sequence[int]) -> tuple[int, int] | None:
    """A first child and the last of its siblings that was not accepted; None in a chain."""
    pairs = [(below[0], node) for below in tree.children for node in below[1:] if node not in path]
    return max(pairs, key=lambda pair: pair[1], default=None)


def _block_without_root(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """A block of so many tokens as the deepest tree has levels below its root; the root needs one more."""
    depth = max(int(r.tree.tree.depths.max()) for step in steps for r in step.requests)
    if depth < 1:
        raise ValueError("requests.tree: expected a node below a root, found none")
    return [with_config(step, block_size=depth) for step in steps]


def _heap_keys(step: VerifyStep) -> VerifyStep:
    """A heap that gives the smallest first holds negated log-weights."""

    def edit(number: int, request: Request) -> Request:
        weights = need(request.tree.log_weights, f"requests[{number}].tree.log_weights")
        return with_tree(request, log_weights=-weights)

    return with_requests(step, edit)


def _leaves_first(step: VerifyStep) -> VerifyStep:
    return renumbered(step, lambda tree: [0, *range(tree.num_nodes - 1, 0, -1)])


INJECTORS = (
    RecordedInjector(
        "lost-parent",
        "The parent of the last node was never found, because its log-probability was not a number.",
        every(_lost_parent),
    ),
    RecordedInjector(
        "repeated-candidate",
        "A drafter's list of candidates holds one token twice, so two siblings are alike.",
        every(_repeated_candidate),
    ),
    RecordedInjector(
        "block-without-root",
        "The tree is as deep as the block is long, although the block's first token is the root.",
        _block_without_root,
    ),
    RecordedInjector(
        "heap-keys",
        "The negated keys of the builder's heap are handed on as log-weights.",
        every(_heap_keys),
    ),
    RecordedInjector(
        "leaves-first",
        "Nodes are numbered from the leaves up, so children come before their parents.",
        every(_leaves_first),
    ),
)
