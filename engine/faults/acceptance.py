"""Faults of the links, the acceptance walk, the bonus and what is emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from engine.decoding.metadata import Links
from engine.decoding.stages import Stages
from engine.tree import DraftTree


def lost_sibling(stages: Stages) -> Stages:
    """``retrieve_next_sibling`` ends after the first child of each node."""

    def links(trees: list[DraftTree], q_len: int) -> Links:
        made = stages.links(trees, q_len)
        return replace(made, retrieve_next_sibling=made.retrieve_next_sibling.fill_(-1))

    return replace(stages, links=links)


def lost_child(stages: Stages) -> Stages:
    """``retrieve_next_token`` of every node but the root is lost: the walk ends at depth 1."""

    def links(trees: list[DraftTree], q_len: int) -> Links:
        made = stages.links(trees, q_len)
        made.retrieve_next_token[:, 1:] = -1
        return made

    return replace(stages, links=links)


def shifted_logits(stages: Stages) -> Stages:
    """A child is judged by its own row instead of its parent's."""

    def walk(
        next_token: Sequence[int],
        next_sibling: Sequence[int],
        tokens: Sequence[int],
        predict: Sequence[int],
    ) -> list[int]:
        path, node = [0], next_token[0]
        while node != -1:
            accepted = tokens[node] == predict[node]
            path += [node] if accepted else []
            node = next_token[node] if accepted else next_sibling[node]
        return path

    return replace(stages, walk=walk)


def unverified_first(stages: Stages) -> Stages:
    """The root's first child is committed without asking the target."""

    def walk(
        next_token: Sequence[int],
        next_sibling: Sequence[int],
        tokens: Sequence[int],
        predict: Sequence[int],
    ) -> list[int]:
        if next_token[0] == -1:
            return [0]
        trusting = [tokens[next_token[0]], *predict[1:]]
        return stages.walk(next_token, next_sibling, tokens, trusting)

    return replace(stages, walk=walk)


def short_walk(stages: Stages) -> Stages:
    """The walk stops before its last node."""

    def walk(
        next_token: Sequence[int],
        next_sibling: Sequence[int],
        tokens: Sequence[int],
        predict: Sequence[int],
    ) -> list[int]:
        path = stages.walk(next_token, next_sibling, tokens, predict)
        return path[:-1] if len(path) > 1 else path

    return replace(stages, walk=walk)


def bonus_stride(stages: Stages) -> Stages:
    """The bonus is read at the k-th row of the request, k accepted nodes, instead of the last accepted row."""

    def bonus(predict: Tensor, paths: list[list[int]]) -> list[int]:
        return [int(predict[i, len(path) - 1]) for i, path in enumerate(paths)]

    return replace(stages, bonus=bonus)


def past_stop(stages: Stages) -> Stages:
    """Tokens after an end-of-sequence token are emitted."""

    def emit(tokens: list[int], stop: tuple[int, ...]) -> list[int]:
        return tokens

    return replace(stages, emit=emit)


def dropped_token(stages: Stages) -> Stages:
    """The first accepted token of a step is left out where there are several."""

    def emit(tokens: list[int], stop: tuple[int, ...]) -> list[int]:
        kept = stages.emit(tokens, stop)
        return kept[1:] if len(kept) > 1 else kept

    return replace(stages, emit=emit)
