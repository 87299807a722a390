"""Hypotheses about a wrong mask, most specific first. Each says whether it explains every differing cell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.checks.context import Difference, StepContext, assumed
from engine.layout import UNREAD, VISIBLE, Cells, MaskView

Bools = NDArray[np.bool_]

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


def _real(view: MaskView, context: StepContext, request: int) -> Cells:
    """Cells of the real rows."""
    return view.cells[: context.oracle.num_verified(request)]


def _equals(context: StepContext, request: int, wanted: Bools) -> bool:
    """Whether the built cells of all real rows are these, wherever the buffer holds a cell."""
    view, count = context.built[request], len(wanted)
    have = view.cells[:count]
    return bool(((have == wanted) | assumed(view)[:count]).all()) and not (have == UNREAD).any()


def _intended(context: StepContext, request: int) -> Bools:
    seen: Bools = np.equal(_real(context.intended[request], context, request), VISIBLE)
    return seen


def _causal(context: StepContext, request: int, difference: Difference) -> bool:
    """Lower triangle over the tree; the prefix all visible, or as intended."""
    wanted = _intended(context, request)
    prefix_len = int(context.oracle.prefix_lens[request])
    rows, columns = np.indices(wanted.shape)
    causal: Bools = np.less_equal(columns, prefix_len + rows)
    windowed = np.where(columns < prefix_len, wanted, causal)
    return _equals(context, request, causal) or _equals(context, request, windowed)


def _request_broadcast(context: StepContext, request: int, difference: Difference) -> bool:
    """The tree columns are another request's, as far as that one has rows and columns."""
    prefix_len = int(context.oracle.prefix_lens[request])
    for other in context.readable:
        before = int(context.oracle.prefix_lens[other])
        theirs = _intended(context, other)[:, before:]
        wanted = _intended(context, request)
        height = min(len(wanted), len(theirs))
        width = min(wanted.shape[1] - prefix_len, theirs.shape[1])
        if other == request or height < 2:
            continue
        wanted[:height, prefix_len : prefix_len + width] = theirs[:height, :width]
        if _equals(context, request, wanted):
            return True
    return False


def _previous_tree(context: StepContext, request: int, difference: Difference) -> bool:
    if context.previous_request(request) is None or (difference.found == UNREAD).any():
        return False
    return (
        (_same_bytes(context, difference) and not _same_tree(context, request))
        or _old_block(context, request)
        or _old_cells(context, request)
    )


def _same_bytes(context: StepContext, difference: Difference) -> bool:
    """The buffer was not refreshed: as far as the step before reached, it holds that step's bytes, every one.

    Cells past that reach are older still, so nothing can be said of them; some differing cell must lie within it.
    """
    mine = context.step.inputs.custom_mask
    before = None if context.previous is None else context.previous.inputs.custom_mask
    if mine is None or before is None:
        return False
    end = min(len(mine), len(before))
    places = difference.view.bytes[difference.cells[:, 0], difference.cells[:, 1]]
    return bool((places < end).any()) and np.array_equal(mine[:end], before[:end])


def _same_tree(context: StepContext, request: int) -> bool:
    """Whether the step before had the same cells in mind: what it left in the buffer would then be right.

    Only a mask without prefix columns can be the same in two steps, since the prefix grows.
    """
    if not context.oracle.geometry.qlen_only:
        return False
    now = context.intended[request]
    return any(
        np.array_equal(now.cells[:, now.prefix_len :], view.cells[:, view.prefix_len :])
        for view in _previous_views(context, request)
    )


def _previous_views(context: StepContext, request: int) -> list[MaskView]:
    """Intended mask of the same request in the step before, if its tree could be read.

    Not the built one: a fault that every step repeats would then look like one that was left over.
    """
    earlier, number = context.earlier, context.number_before(request)
    if earlier is None or number is None or number not in earlier.readable:
        return []
    return [earlier.intended[number]]


def _old_block(context: StepContext, request: int) -> bool:
    """Prefix columns are hidden where the tree block of the step before hid them, left in place."""
    prefix_len = int(context.oracle.prefix_lens[request])
    for view in _previous_views(context, request):
        wanted, start = _intended(context, request), view.prefix_len
        block = view.cells[:, start:] == VISIBLE
        height, width = min(len(wanted), len(block)), min(prefix_len - start, block.shape[1])
        if width > 0:
            wanted[:height, start : start + width] &= block[:height, :width]
            if _equals(context, request, wanted):
                return True
    return False


def _old_cells(context: StepContext, request: int) -> bool:
    """Tree columns still show the tree of the step before, in its place or beneath the new one."""
    prefix_len = int(context.oracle.prefix_lens[request])
    for view in _previous_views(context, request):
        block = view.cells[:, view.prefix_len :] == VISIBLE
        wanted = _intended(context, request)
        tree = wanted[:, prefix_len:]
        height, width = min(len(tree), len(block)), min(tree.shape[1], block.shape[1])
        for cells in (block[:height, :width], block[:height, :width] | tree[:height, :width]):
            stale = wanted.copy()
            stale[:height, prefix_len : prefix_len + width] = cells
            if height > 1 and _equals(context, request, stale):
                return True
    return False


def _window_by_index(context: StepContext, request: int, difference: Difference) -> bool:
    window, tree = context.step.config.sliding_window, context.oracle.trees[request]
    if window is None:
        return False
    prefix_len = int(context.oracle.prefix_lens[request])
    rows, columns = np.indices(_intended(context, request).shape)
    allowed: Bools = np.less(columns, prefix_len)
    for node, path in enumerate(tree.paths[: len(allowed)]):
        inside = [prefix_len + other for other in path if prefix_len + other < allowed.shape[1]]
        allowed[node, inside] = True
    return _equals(context, request, allowed & (prefix_len + rows - columns < window))


def _padding_leak(context: StepContext, request: int, difference: Difference) -> bool:
    first_padding = (
        int(context.oracle.prefix_lens[request]) + context.oracle.trees[request].num_nodes
    )
    return difference.extra and bool((difference.cells[:, 1] >= first_padding).all())


def _sibling_leak(context: StepContext, request: int, difference: Difference) -> bool:
    tree, nodes = (
        context.oracle.trees[request],
        difference.cells[:, 1] - context.oracle.prefix_lens[request],
    )
    foreign = [
        0 <= node < tree.num_nodes and node not in tree.paths[row]
        for row, node in zip(difference.cells[:, 0].tolist(), nodes.tolist(), strict=True)
    ]
    return difference.extra and all(foreign)


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
