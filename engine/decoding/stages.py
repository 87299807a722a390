"""The stages of a verify step that an injector may replace.

Each is a plain function of the real data path; :data:`CORRECT` is the engine as it should be. A fault is the same
record with one stage exchanged (``engine.faults``), so a faulty run differs from a correct one in that stage only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from engine.decoding import metadata
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
    pool.move(slots[: len(accepted)], slots[accepted])


@dataclass(frozen=True)
class Stages:
    """One function a stage."""

    verify_width: Callable[[int, int], int] = budget_width  # (budget, block_size)
    tree_mask: Callable[[DraftTree, int, int], Tensor] = metadata.tree_mask
    tree_positions: Callable[[DraftTree, int, int], Tensor] = metadata.tree_positions
    refresh_mask: Callable[[Tensor, Tensor], None] = copy_mask
    compact: Callable[[KVPool, Tensor, Tensor], None] = gather_accepted


CORRECT = Stages()
