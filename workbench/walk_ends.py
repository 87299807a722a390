"""Why a walk stopped where it did: the target's token was no candidate, beyond the top-k, or got no node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from engine.decoding.acceptance_curve import DraftedPlace
from engine.step import Config, TreeRecord
from engine.tree import DraftTree


class End(StrEnum):
    """What was the matter with the target's token, in words that follow "a token"."""

    NO_CANDIDATE = "that was no candidate"
    BEYOND_TOPK = "beyond the top-k"
    NO_NODE = "not drafted, the nodes went to others"
    DRAFTED = "drafted, yet not accepted"
    ELSEWHERE = "whose path the recorded tree lacks"


def end_of(place: DraftedPlace, record: TreeRecord, config: Config) -> End | None:
    """``record``: the tree that was walked. None where the walk did not stop at a known token."""
    ranks, at = place.target_ranks, place.accepted
    if at >= len(ranks):
        return None
    rank, tree = ranks[at], record.tree
    node = _last(tree, place.following[:at])
    if node is None:
        return End.ELSEWHERE
    if _child(tree, node, place.following[at]) is not None:
        return End.DRAFTED
    if rank is None:
        return End.NO_CANDIDATE
    if config.topk is not None and rank >= config.topk:
        return End.BEYOND_TOPK
    return End.NO_NODE


def _last(tree: DraftTree, tokens: Iterable[int]) -> int | None:
    """The node at the end of a path from the root; None where the tree does not hold the path."""
    node: int | None = 0
    for token in tokens:
        node = None if node is None else _child(tree, node, token)
    return node


def _child(tree: DraftTree, node: int, token: int) -> int | None:
    return next((k for k in tree.children[node] if int(tree.tokens[k]) == token), None)


def ends_text(ends: Sequence[End | None], topk: int | None, budget: int | None) -> str:
    """``5 at a token beyond the top-k 4, 3 at one that …``; the most frequent first."""
    known = [end for end in ends if end is not None]
    counts = sorted(set(known), key=lambda end: (-known.count(end), list(End).index(end)))
    return ", ".join(f"{known.count(end)} at a token {said(end, topk, budget)}" for end in counts)


def said(end: End, topk: int | None, budget: int | None) -> str:
    """One reason with the number that it turns on."""
    if end is End.BEYOND_TOPK and topk is not None:
        return f"{end} of {topk}"
    if end is End.NO_NODE and budget is not None:
        return f"not drafted, the {budget} nodes went to others"
    return str(end)
