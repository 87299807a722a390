"""Faults of the per-row arrays: tokens, slots, and the rows of padded requests."""

from __future__ import annotations

from dataclasses import replace

from engine.decoding.metadata import VerifyInputs
from engine.decoding.stages import Stages
from engine.tree import DraftTree


def size_from_tokens(stages: Stages) -> Stages:
    """The tree's size is taken for the number of its tokens that are not 0, and the root."""

    def counted_nodes(tree: DraftTree) -> int:
        return 1 + int((tree.tokens[1:] != 0).sum())

    return replace(stages, counted_nodes=counted_nodes)


def stale_padding(stages: Stages) -> Stages:
    """Rows of padded requests keep the positions of the first live request."""

    def inputs(laid_out: VerifyInputs) -> VerifyInputs:
        laid_out = stages.inputs(laid_out)
        positions, slots = laid_out.positions.clone(), laid_out.out_cache_loc
        rows = len(positions) // len(laid_out.seq_lens)
        for start in range(rows, len(positions), rows):
            if (slots[start : start + rows] == 0).all():
                positions[start : start + rows] = positions[:rows]
        return replace(laid_out, positions=positions)

    return replace(stages, inputs=inputs)


def slot_collision(stages: Stages) -> Stages:
    """The last row of each request writes to the slot of its root."""

    def inputs(laid_out: VerifyInputs) -> VerifyInputs:
        laid_out = stages.inputs(laid_out)
        slots = laid_out.out_cache_loc.clone()
        rows = len(slots) // len(laid_out.seq_lens)
        slots[rows - 1 :: rows] = slots[::rows]
        return replace(laid_out, out_cache_loc=slots)

    return replace(stages, inputs=inputs)


def slot_in_prefix(stages: Stages) -> Stages:
    """The last row of each request writes to the slot of its first committed token."""

    def inputs(laid_out: VerifyInputs) -> VerifyInputs:
        laid_out = stages.inputs(laid_out)
        slots, attention = laid_out.out_cache_loc.clone(), laid_out.attention
        rows = len(slots) // len(laid_out.seq_lens)
        slots[rows - 1 :: rows] = attention.kv_indices[attention.kv_indptr[:-1].long()]
        return replace(laid_out, out_cache_loc=slots)

    return replace(stages, inputs=inputs)
