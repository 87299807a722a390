"""Hypotheses about a wrong mask, most specific first. Each says whether it explains every differing cell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.checks.context import Difference, StepContext
from engine.layout import UNREAD, Cells
from engine.oracle import Oracle

EXPLANATIONS = {
    "causal-mask": "The mask equals a causal one (every row sees all rows before it) in all cells.",
    "request-broadcast": "The tree columns equal those of another request of the batch in all cells.",
    "previous-tree-not-cleared": "The differing cells still hold the mask of the step before.",
    "window-by-index": "The mask equals one whose sliding window counts rows, not positions, in all cells.",
    "padding-leak": "Every wrong cell is a real node that sees a padding row.",
    "sibling-leak": "Every wrong cell is a node that sees another branch of its own tree.",
    "prefix-hidden": "Every wrong cell hides a committed token.",
    "mask-cell": "No known pattern explains all differing cells.",
}


def diagnose(context: StepContext, request: int, difference: Difference) -> str:
    """The first hypothesis that explains every differing cell of the request."""
    for name, explains in _HYPOTHESES:
        if explains(context, request, difference):
            return name
    return "mask-cell"


def _real(context: StepContext, request: int) -> Cells:
    """Built cells of the real rows."""
    return context.built[request].cells[: context.oracle.trees[request].num_nodes]


def _causal(context: StepContext, request: int, difference: Difference) -> bool:
    have = _real(context, request)
    prefix_len = int(context.oracle.prefix_lens[request])
    rows, columns = np.indices(have.shape)
    return bool((have == (columns <= prefix_len + rows)).all())


def _request_broadcast(context: StepContext, request: int, difference: Difference) -> bool:
    prefix_len = int(context.oracle.prefix_lens[request])
    if (difference.cells[:, 1] < prefix_len).any():
        return False
    have = _real(context, request)[:, prefix_len:]
    for other in context.readable:
        if other == request or context.oracle.q_lens[other] != context.oracle.q_lens[request]:
            continue
        theirs = context.intended[other].cells[:, int(context.oracle.prefix_lens[other]) :]
        shared = min(len(have), context.oracle.trees[other].num_nodes)
        if shared > 1 and np.array_equal(have[:shared], theirs[:shared]):
            return bool((difference.cells[:, 0] < shared).all())
    return False


def _previous_tree(context: StepContext, request: int, difference: Difference) -> bool:
    return _same_bytes(context, difference) or _old_block(context, request, difference)


def _same_bytes(context: StepContext, difference: Difference) -> bool:
    """The buffer was not refreshed: as far as the step before reached, it holds that step's bytes, every one.

    Cells past that reach are older still, so nothing can be said of them; some differing cell must lie within it.
    """
    mine = context.step.inputs.custom_mask
    before = None if context.previous is None else context.previous.inputs.custom_mask
    if mine is None or before is None or (difference.found == UNREAD).any():
        return False
    end = min(len(mine), len(before))
    places = difference.view.bytes[difference.cells[:, 0], difference.cells[:, 1]]
    return bool((places < end).any()) and np.array_equal(mine[:end], before[:end])


def _old_block(context: StepContext, request: int, difference: Difference) -> bool:
    """Hidden prefix columns are the hidden cells of the tree block of the step before, left in place."""
    previous = context.previous_request(request)
    prefix_len = int(context.oracle.prefix_lens[request])
    if previous is None or context.previous is None:
        return False
    start = previous.prefix_len
    columns = difference.cells[:, 1]
    if (difference.found != 0).any() or (columns < start).any() or (columns >= prefix_len).any():
        return False
    number = next(i for i, r in enumerate(context.previous.requests) if r.rid == previous.rid)
    block = Oracle(context.previous).intended(number).cells[:, start:]
    rows = len(_real(context, request))
    hidden = _real(context, request)[:, start:prefix_len] == 0
    height, width = min(rows, len(block)), min(hidden.shape[1], block.shape[1])
    return (
        bool((difference.cells[:, 0] < height).all())
        and bool((columns < start + width).all())
        and np.array_equal(hidden[:height, :width], block[:height, :width] == 0)
    )


def _window_by_index(context: StepContext, request: int, difference: Difference) -> bool:
    window = context.step.config.sliding_window
    if window is None:
        return False
    have = _real(context, request)
    prefix_len = int(context.oracle.prefix_lens[request])
    tree = context.oracle.trees[request]
    rows, columns = np.indices(have.shape)
    near = prefix_len + rows - columns < window
    allowed = columns < prefix_len
    for node, path in enumerate(tree.paths):
        allowed[node, [prefix_len + other for other in path]] = True
    return bool((have == (allowed & near)).all())


def _padding_leak(context: StepContext, request: int, difference: Difference) -> bool:
    first_padding = (
        int(context.oracle.prefix_lens[request]) + context.oracle.trees[request].num_nodes
    )
    return difference.extra and bool((difference.cells[:, 1] >= first_padding).all())


def _sibling_leak(context: StepContext, request: int, difference: Difference) -> bool:
    prefix_len = int(context.oracle.prefix_lens[request])
    end = prefix_len + context.oracle.trees[request].num_nodes
    columns = difference.cells[:, 1]
    return difference.extra and bool(((columns >= prefix_len) & (columns < end)).all())


def _prefix_hidden(context: StepContext, request: int, difference: Difference) -> bool:
    in_prefix = difference.cells[:, 1] < int(context.oracle.prefix_lens[request])
    return bool(in_prefix.all()) and bool((difference.found == 0).all())


_HYPOTHESES: tuple[tuple[str, Callable[[StepContext, int, Difference], bool]], ...] = (
    ("causal-mask", _causal),
    ("request-broadcast", _request_broadcast),
    ("previous-tree-not-cleared", _previous_tree),
    ("window-by-index", _window_by_index),
    ("padding-leak", _padding_leak),
    ("sibling-leak", _sibling_leak),
    ("prefix-hidden", _prefix_hidden),
)
