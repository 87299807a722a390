"""The stages of a verify step that an injector may replace.

Each is a plain function of the real data path; :data:`CORRECT` is the engine as it should be. A fault is the same
record with one stage exchanged (``engine.faults``), so a faulty run differs from a correct one in that stage only.
Tensors of ``refresh_mask`` and ``inputs`` lie on the model's device, all others on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decoding import metadata
from engine.decoding.accept import walk
from engine.decoding.metadata import Links, VerifyInputs
from engine.models.device import HOST
from engine.models.kv_pool import KVPool
from engine.tree import DraftTree


def budget_width(budget: int, block_size: int) -> int:
    """Rows a request that the attention backend lays out: the budget and the root."""
    return budget + 1


def copy_mask(buffer: Tensor, mask: Tensor) -> None:
    """Refresh the head of a persistent mask buffer, both flat uint8."""
    buffer[: len(mask)] = mask


def gather_accepted(pool: KVPool, slots: Tensor, accepted: Tensor) -> None:
    """Move the KV of the accepted nodes to the first slots of the request's draft rows.

    ``slots``: int64 [q_len], the slots that its rows were written to; ``accepted``: int64 [n] node numbers, ascending.
    """
    there = torch.arange(len(accepted), device=HOST)
    moved = accepted != there
    if moved.any():
        pool.move(slots[there[moved]], slots[accepted[moved]])


def as_built(trees: list[DraftTree]) -> list[DraftTree]:
    """The batch that is verified is the one that was built."""
    return trees


def as_laid_out(inputs: VerifyInputs) -> VerifyInputs:
    """What the forward reads is what was laid out."""
    return inputs


def last_prediction(predict: Tensor, paths: list[list[int]]) -> list[int]:
    """The token that each request's last accepted row predicts; ``predict``: int64 [captured_bs, q_len]."""
    return [int(predict[i, path[-1]]) for i, path in enumerate(paths)]


def until_stop(tokens: list[int], stop: tuple[int, ...]) -> list[int]:
    """Tokens up to and with the first stop."""
    ends = [place for place, token in enumerate(tokens) if token in stop]
    return tokens[: ends[0] + 1] if ends else tokens


def accepted_rows(path: list[int]) -> list[int]:
    """Nodes whose hidden states the drafter gets: the accepted ones."""
    return list(path)


def all_nodes(tree: DraftTree) -> int:
    """The size of a tree is its number of nodes."""
    return tree.num_nodes


@dataclass(frozen=True)
class Stages:
    """One function a stage."""

    begin: Callable[[list[DraftTree]], list[DraftTree]] = as_built  # the batch, before its layout
    verify_width: Callable[[int, int], int] = budget_width  # (budget, block_size)
    tree_mask: Callable[[DraftTree, int, int], Tensor] = metadata.tree_mask
    tree_positions: Callable[[DraftTree, int, int], Tensor] = metadata.tree_positions
    refresh_mask: Callable[[Tensor, Tensor], None] = copy_mask
    inputs: Callable[[VerifyInputs], VerifyInputs] = as_laid_out  # last word before the forward
    counted_nodes: Callable[[DraftTree], int] = all_nodes
    links: Callable[[list[DraftTree], int], Links] = metadata.build_links  # (trees, q_len)
    walk: Callable[[Sequence[int], Sequence[int], Sequence[int], Sequence[int]], list[int]] = walk
    bonus: Callable[[Tensor, list[list[int]]], list[int]] = last_prediction
    compact: Callable[[KVPool, Tensor, Tensor], None] = gather_accepted
    hidden_rows: Callable[[list[int]], list[int]] = accepted_rows
    emit: Callable[[list[int], tuple[int, ...]], list[int]] = until_stop  # (tokens, stop ids)


CORRECT = Stages()
