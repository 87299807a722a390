"""Faults of how many nodes are verified, and of the tokens in their rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.faults.recorded.conclusions import concluded, walked
from engine.faults.recorded.edit import (
    after,
    every,
    extents,
    last,
    need,
    rows_of,
    tokens_of,
    with_inputs,
    with_requests,
)
from engine.faults.recorded.injector import RecordedInjector
from engine.faults.recorded.leaves import with_token_zero
from engine.faults.recorded.numbering import first_rows, with_trees_of
from engine.step import Request, VerifyStep


def _tree_past_rows(step: VerifyStep) -> VerifyStep:
    """One row less than the smallest tree has nodes."""
    rows = min(request.tree.tree.num_nodes for request in step.requests) - 1
    if rows < 1:
        raise ValueError("requests.tree: expected at least 2 nodes a request, found 1")
    cut = first_rows(step, rows)
    return with_trees_of(concluded(cut, walked(cut)), step)


def _tokens_in_level_order(step: VerifyStep) -> VerifyStep:
    """Tokens as the drafter's levels hold them, not as the builder took them; the walk reads the same rows."""
    ids = need(step.inputs.input_ids, "inputs.input_ids").copy()
    for number, request in enumerate(step.requests):
        levels = np.argsort(request.tree.tree.depths, kind="stable")
        start = rows_of(step, number).start
        ids[start : start + len(levels)] = tokens_of(step, number)[levels]
    laid_out = with_inputs(step, input_ids=ids)
    return concluded(laid_out, walked(laid_out))


def _size_from_rows(step: VerifyStep) -> VerifyStep:
    """As many nodes as the request has rows, padding included."""
    q_lens = extents(step).q_lens.tolist()

    def counted(number: int, request: Request) -> Request:
        return replace(request, counted_nodes=q_lens[number])

    return with_requests(step, counted)


def _size_from_tokens(step: VerifyStep) -> VerifyStep:
    """The root and every node whose token is not 0."""

    def counted(number: int, request: Request) -> Request:
        nonzero = int(np.count_nonzero(tokens_of(step, number)[1:]))
        return replace(request, counted_nodes=1 + nonzero)

    return with_requests(step, counted)


INJECTORS = (
    RecordedInjector(
        "zero-not-counted",
        "The tree's size is counted as its tokens that are not 0, and a leaf holds token 0.",
        after(with_token_zero, every(_size_from_tokens)),
    ),
    RecordedInjector(
        "tree-past-rows",
        "The last step is laid out for one row less than its smallest tree has nodes.",
        last(_tree_past_rows),
    ),
    RecordedInjector(
        "tokens-in-level-order",
        "The rows of the last step hold the tokens level by level, although nodes come best first.",
        last(_tokens_in_level_order),
    ),
    RecordedInjector(
        "size-from-rows",
        "The tree's size is taken for the number of rows that were laid out, padding rows included.",
        every(_size_from_rows),
    ),
)
