"""What each node of a step's trees should have, at a glance: I7, I10, I12."""

from __future__ import annotations

from operator import ge

from engine.checks.glance.plain_step import PlainStep
from engine.checks.glance.plain_tree import links_of


def tree_form(plain: PlainStep) -> bool:
    """I7: siblings, depths and order of probability; the rest is what a covered tree is."""
    block = plain.config.block_size
    if plain.children is None:
        return False
    for request, tree in zip(plain.requests, plain.trees, strict=True):
        if block is not None and max(tree.depths) >= block:
            return False
        if request.tree.log_weights is not None:
            weights = request.tree.log_weights.tolist()
            if not all(map(ge, weights, weights[1:])):
                return False
    return True


def positions(plain: PlainStep) -> bool:
    """I10."""
    recorded = plain.positions
    if recorded is None:
        return False
    for tree, length, start in zip(plain.trees, plain.prefix_lens, plain.qo_indptr, strict=False):
        expected = [length + depth for depth in tree.depths]
        if recorded[start : start + len(expected)] != expected:
            return False
    return True


def links(plain: PlainStep) -> bool:
    """I12."""
    recorded = plain.context.step.links
    tokens, siblings = recorded.retrieve_next_token, recorded.retrieve_next_sibling
    for lists in (tokens, siblings):
        if lists is not None and len(lists) < len(plain.trees):
            return False
    for request, tree in enumerate(plain.trees):
        size = len(tree.parents)
        for lists, expected in zip((tokens, siblings), links_of(tree.parents), strict=True):
            if lists is not None and lists[request].tolist()[:size] != expected:
                return False
    return True
