"""Triton kernels of the best tokens of each row of logits: maxima of groups, then the best of the best groups.

A logit and its token become one 64-bit key: equal logits order by token, so no two keys are equal. The K best keys of
a row then lie in the K groups with the largest maxima, and a second pass needs those alone, whatever the row holds.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.graphs.sort_kernel import largest

LEAST = tl.constexpr(-0x8000000000000000)
LOW_WORD = tl.constexpr(0x7FFFFFFF)


@triton.jit  # type: ignore[untyped-decorator]
def _keys(value: tl.tensor, token: tl.tensor):  # type: ignore[no-untyped-def]
    """int64 keys that ascend with float32 ``value`` and descend with int32 ``token``."""
    value = tl.where(value == 0.0, 0.0, value)  # -0.0 equals 0.0
    bits = value.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & LOW_WORD)
    return (ordered.to(tl.int64) << 32) | (token ^ LOW_WORD).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def group_maxima(  # type: ignore[no-untyped-def]
    logits,
    maxima,
    tops,
    sums,
    vocab,
    row_stride,
    groups,
    CHUNK_GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Grid (rows, chunks). Key of the best of each group, and of each chunk its maximum and the sum of exponentials."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group = chunk * CHUNK_GROUPS + tl.arange(0, CHUNK_GROUPS)
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = token < vocab
    value = tl.load(logits + row * row_stride + token, mask=there, other=float("-inf")).to(
        tl.float32
    )
    keys = tl.where(there, _keys(value, token), LEAST)
    tl.store(maxima + row * groups + group, tl.max(keys, 1), mask=group < groups)
    top = tl.max(tl.max(value, 1), 0)
    shift = tl.where(top == float("-inf"), 0.0, top)  # a chunk of -inf alone sums to 0
    parts = tl.exp(value.to(tl.float64) - shift.to(tl.float64))
    tl.store(tops + row * tl.num_programs(1) + chunk, top)
    tl.store(sums + row * tl.num_programs(1) + chunk, tl.sum(tl.sum(parts, 1), 0))


@triton.jit  # type: ignore[untyped-decorator]
def best_of_groups(  # type: ignore[no-untyped-def]
    logits,
    maxima,
    tops,
    sums,
    log_probs,
    tokens,
    vocab,
    row_stride,
    groups,
    chunks,
    count,
    CHUNKS: tl.constexpr,
    GROUP: tl.constexpr,
    LOG_GROUPS: tl.constexpr,
    LOG_GROUP: tl.constexpr,
    LOG_BEST: tl.constexpr,
):
    """Grid (rows,). The ``count`` best tokens, at most 2^LOG_BEST, and their log-probabilities over the whole row."""
    BEST: tl.constexpr = 1 << LOG_BEST
    row = tl.program_id(0).to(tl.int64)
    GROUPS: tl.constexpr = 1 << LOG_GROUPS
    number = tl.arange(0, GROUPS)
    maximum = tl.load(maxima + row * groups + number, mask=number < groups, other=LEAST)
    leaders = largest(maximum, LOG_GROUPS, LOG_BEST)
    group = ((leaders & LOW_WORD).to(tl.int32) ^ LOW_WORD) // GROUP
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = (leaders != LEAST)[:, None] & (token < vocab)
    value = tl.load(logits + row * row_stride + token, mask=there, other=float("-inf")).to(
        tl.float32
    )
    keys = tl.where(there, _keys(value, token), LEAST)
    best = largest(tl.reshape(keys, [BEST * GROUP]), LOG_BEST + LOG_GROUP, LOG_BEST)

    chunk = tl.arange(0, CHUNKS)
    top = tl.load(tops + row * chunks + chunk, mask=chunk < chunks, other=float("-inf"))
    part = tl.load(sums + row * chunks + chunk, mask=chunk < chunks, other=0.0)
    highest = tl.max(top, 0).to(tl.float64)
    total = tl.sum(tl.where(part > 0.0, part * tl.exp(top.to(tl.float64) - highest), part), 0)

    ordered = (best >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & LOW_WORD)
    result = bits.to(tl.float32, bitcast=True).to(tl.float64) - highest - tl.log(total)
    result = tl.where(result == result, tl.minimum(result, 0.0), float("-inf"))
    place = tl.arange(0, BEST)
    at = row * count + place
    tl.store(log_probs + at, result, mask=place < count)
    tl.store(
        tokens + at, ((best & LOW_WORD).to(tl.int32) ^ LOW_WORD).to(tl.int64), mask=place < count
    )
