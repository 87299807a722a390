"""Faults of the links, the accepted path, its length and the bonus."""

from __future__ import annotations

from dataclasses import replace

from engine.faults.recorded.conclusions import concluded, walked
from engine.faults.recorded.edit import (
    accepted,
    every,
    ints,
    last,
    need,
    rows_of,
    with_commit,
    with_outcome,
)
from engine.faults.recorded.injector import RecordedInjector
from engine.step import Int64, VerifyStep
from engine.tree import DraftTree


def _cousin_links(step: VerifyStep) -> VerifyStep:
    """The next sibling is the next node of the same level, whoever its parent is; the walk follows."""
    recorded = need(step.links.retrieve_next_sibling, "links.retrieve_next_sibling")
    siblings = tuple(
        _next_of_level(request.tree.tree, found)
        for request, found in zip(step.requests, recorded, strict=True)
    )
    linked = replace(step, links=replace(step.links, retrieve_next_sibling=siblings))
    return concluded(linked, walked(linked))


def _next_of_level(tree: DraftTree, found: Int64) -> Int64:
    levels = tree.depths.tolist()
    following = found.copy()
    for node, level in enumerate(levels):
        later = (n for n in range(node + 1, len(levels)) if levels[n] == level)
        following[node] = next(later, -1)
    return following


def _leaf_to_root(step: VerifyStep) -> VerifyStep:
    """The walk climbs from the deepest match and is not turned round; all that follows reads it as it is."""
    return concluded(step, [path[::-1] for path in accepted(step)])


def _length_without_root(step: VerifyStep) -> VerifyStep:
    """``accept_length`` counts drafted tokens alone, and the lengths are advanced by it."""
    lengths = ints([len(path) - 1 for path in accepted(step)])
    prefix_lens = ints([request.prefix_len for request in step.requests])
    return with_commit(with_outcome(step, accept_length=lengths), seq_lens=prefix_lens + lengths)


def _local_accept_index(step: VerifyStep) -> VerifyStep:
    """Row ids counted from each request's own first row."""
    index = need(step.outcome.accept_index, "outcome.accept_index")
    starts = [rows_of(step, request).start for request in range(step.raw_bs)]
    local = [
        ints([int(row) - start if row != -1 else -1 for row in rows])
        for start, rows in zip(starts, index, strict=True)
    ]
    return with_outcome(step, accept_index=tuple(local))


def _runner_up_bonus(step: VerifyStep) -> VerifyStep:
    """The second best token of the last accepted row."""
    top2, paths = need(step.outcome.top2, "outcome.top2"), accepted(step)
    rows = [rows_of(step, i).start + path[-1] for i, path in enumerate(paths)]
    return concluded(step, paths, [int(top2[row, 1, 0]) for row in rows])


INJECTORS = (
    RecordedInjector(
        "cousin-links",
        "In the last step the sibling links lead along whole levels of the tree, across parents.",
        last(_cousin_links),
    ),
    RecordedInjector(
        "leaf-to-root",
        "The accepted rows of the last step are listed from the deepest one up to the root.",
        last(_leaf_to_root),
    ),
    RecordedInjector(
        "length-without-root",
        "accept_length leaves the root out although accept_index holds it.",
        every(_length_without_root),
    ),
    RecordedInjector(
        "local-accept-index",
        "accept_index counts rows from each request's own first row instead of the batch's.",
        every(_local_accept_index),
    ),
    RecordedInjector(
        "runner-up-bonus",
        "The bonus of the last step is the second best token of the last accepted row.",
        last(_runner_up_bonus),
    ),
)
