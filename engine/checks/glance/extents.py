"""Offsets, lengths and sizes of a step at a glance: I1, I2, I3, I4, I6."""

from __future__ import annotations

from itertools import accumulate

from engine.checks.capacity import GUESSED, LARGEST
from engine.checks.differences import same
from engine.checks.glance.plain_step import PlainStep, is_unless_absent

SURE = min(LARGEST[kind] for kind in GUESSED)


def rows(plain: PlainStep) -> bool:
    """I1: extents, lengths of the arrays by row, and the configured width."""
    inputs, config, total = plain.inputs, plain.config, plain.qo_indptr[-1]
    for array in (inputs.input_ids, inputs.positions, inputs.out_cache_loc):
        if array is not None and len(array) != total:
            return False
    width, budget = config.num_draft_tokens, config.budget
    return (
        is_unless_absent(inputs.qo_indptr, plain.qo_indptr)
        and inputs.max_extend_len in (None, max(plain.q_lens))
        and (width is None or budget is None or width == budget + 1)
    )


def tree_size(plain: PlainStep) -> bool:
    """I2: nodes as counted, and the tokens of their rows."""
    for request, size in zip(plain.requests, plain.sizes, strict=True):
        if request.counted_nodes not in (None, size):
            return False
    if not is_unless_absent(plain.inputs.qo_indptr, plain.qo_indptr):
        return False
    if plain.inputs.input_ids is None:
        return True
    ids = plain.inputs.input_ids.tolist()
    return all(
        tree.tokens is None or ids[start : start + size] == tree.tokens
        for tree, start, size in zip(plain.trees, plain.qo_indptr, plain.sizes, strict=False)
    )


def kv(plain: PlainStep) -> bool:
    """I3, entries of one token only: lengths, those that the step before left, and the slots of the prefixes."""
    inputs, config, lens = plain.inputs, plain.config, plain.prefix_lens
    if config.kv_indptr_unit == "page" or not is_unless_absent(inputs.seq_lens, lens):
        return False
    counted = lens
    if config.kv_indptr_counts_draft:
        counted = [length + count for length, count in zip(lens, plain.q_lens, strict=True)]
    starts = list(accumulate(counted, initial=0))
    if not is_unless_absent(inputs.kv_indptr, starts):
        return False
    if inputs.kv_indices is not None and inputs.kv_indptr is not None:
        for start, request in zip(starts, plain.requests, strict=False):
            slots = request.prefix_slots
            if slots is not None and not same(inputs.kv_indices[start : start + len(slots)], slots):
                return False
    return _goes_on(plain)


def _goes_on(plain: PlainStep) -> bool:
    """Whether each prefix is as long as the step before committed it, where that is recorded."""
    previous = plain.context.previous
    if previous is None or previous.commit.seq_lens is None:
        return True
    committed = previous.commit.seq_lens.tolist()
    for request, length in enumerate(plain.prefix_lens):
        number = plain.context.number_before(request)
        if number is not None and number < len(committed) and committed[number] != length:
            return False
    return True


def mask(plain: PlainStep) -> bool:
    """I4: offsets of the mask, and the length of its buffer."""
    buffer = plain.inputs.custom_mask
    end = (plain.byte_indptr if plain.bits else plain.mask_indptr)[-1]
    return is_unless_absent(plain.inputs.mask_indptr, plain.mask_indptr) and (
        buffer is None or len(buffer) >= end
    )


def capacity(plain: PlainStep) -> bool:
    """I6: integers that hold the offsets, the mask's buffer, and the rotary table."""
    config, needed = plain.config, plain.mask_indptr[-1]
    if needed > min(SURE, LARGEST.get(config.index_dtype or "", SURE)):
        return False
    if config.mask_capacity is not None:
        longest = config.max_context
        if longest is not None and config.mask_layout != "qlen":
            needed = max(needed, sum([count * (longest + count) for count in plain.q_lens]))
        if config.mask_capacity < needed:
            return False
    return config.max_position is None or _in_table(plain, config.max_position)


def _in_table(plain: PlainStep, table: int) -> bool:
    """Whether all positions lie within a rotary table, recorded ones and those of nodes."""
    recorded = plain.positions or [0]
    return (
        min(recorded) >= 0
        and max(recorded) < table
        and all(
            first >= 0 and first + max(tree.depths) < table
            for first, tree in zip(plain.prefix_lens, plain.trees, strict=True)
        )
    )
