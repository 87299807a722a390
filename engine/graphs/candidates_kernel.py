"""Triton kernels of the best tokens of each row of logits: maxima of groups, then the best of the best groups.

A logit and its token become one 64-bit key: equal logits order by token, so no two keys are equal. The K best keys of
a row then lie in the K groups with the largest maxima, and a second pass needs those alone, whatever the row holds.
Which keys are among the K largest is found by bisection, not by sorting: over the bits of the logit, then, among equal
logits, over those of the token.
"""

from __future__ import annotations

import triton
import triton.language as tl

LEAST = tl.constexpr(-0x8000000000000000)
LOW_WORD = tl.constexpr(0x7FFFFFFF)
LEAST_WORD = tl.constexpr(-0x80000000)


@triton.jit  # type: ignore[untyped-decorator]
def keys_of(value: tl.tensor, token: tl.tensor):  # type: ignore[no-untyped-def]
    """int64 keys that ascend with float32 ``value`` and descend with int32 ``token``."""
    value = tl.where(value == 0.0, 0.0, value)  # -0.0 equals 0.0
    bits = value.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & LOW_WORD)
    return (ordered.to(tl.int64) << 32) | (token ^ LOW_WORD).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def _taken(keys, count, TOKEN_BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which of different keys are among the ``count`` largest; ``LEAST`` never is."""
    ordered = (keys >> 32).to(tl.int32)
    token = (keys & LOW_WORD).to(tl.int32) ^ LOW_WORD
    floor = tl.full(
        (), LEAST_WORD, tl.int64
    )  # the largest that ``count`` of the ordered logits reach
    step = tl.full((), -LEAST_WORD, tl.int64)
    for _ in range(32):
        reached = tl.sum((ordered >= (floor + step).to(tl.int32)).to(tl.int32), 0)
        floor += tl.where(reached >= count, step, step * 0)
        step = step >> 1
    above = ordered > floor.to(tl.int32)
    tied = (ordered == floor.to(tl.int32)) & (keys != LEAST)
    needed = count - tl.sum(above.to(tl.int32), 0)
    if tl.sum(tied.to(tl.int32), 0) > needed:
        end = tl.full((), 0, tl.int32)  # of equal logits the tokens below it are taken
        width = tl.full((), 1 << (TOKEN_BITS - 1), tl.int32)
        for _ in range(TOKEN_BITS):
            fits = tl.sum((tied & (token < end + width)).to(tl.int32), 0) <= needed
            end += tl.where(fits, width, width * 0)
            width = width >> 1
        tied = tied & (token < end)
    return above | tied


@triton.jit  # type: ignore[untyped-decorator]
def _gathered(keys, count, scratch, PLACES: tl.constexpr, TOKEN_BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The ``count`` largest of different keys in any order, ``LEAST`` behind them; [PLACES], by way of memory."""
    place = tl.arange(0, PLACES)
    taken = _taken(keys, count, TOKEN_BITS)
    order = tl.cumsum(taken.to(tl.int32), 0) - 1
    tl.store(scratch + place, tl.full((PLACES,), LEAST, tl.int64))
    tl.debug_barrier()
    tl.store(scratch + order, keys, mask=taken)
    tl.debug_barrier()
    return tl.load(scratch + place)


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
    keys = tl.where(there, keys_of(value, token), LEAST)
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
    scratch,
    log_probs,
    tokens,
    vocab,
    row_stride,
    groups,
    chunks,
    count,
    GROUPS: tl.constexpr,
    CHUNKS: tl.constexpr,
    GROUP: tl.constexpr,
    BEST: tl.constexpr,
    TOKEN_BITS: tl.constexpr,
):
    """Grid (rows,). The ``count`` best tokens, at most ``BEST``, and their log-probabilities over the whole row.

    ``scratch`` int64 [rows, 2 * BEST].
    """
    row = tl.program_id(0).to(tl.int64)
    scratch += row * 2 * BEST
    number = tl.arange(0, GROUPS)
    maximum = tl.load(maxima + row * groups + number, mask=number < groups, other=LEAST)
    leaders = _gathered(maximum, count, scratch, BEST, TOKEN_BITS)
    group = ((leaders & LOW_WORD).to(tl.int32) ^ LOW_WORD) // GROUP
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = (leaders != LEAST)[:, None] & (token < vocab)
    value = tl.load(logits + row * row_stride + token, mask=there, other=float("-inf")).to(
        tl.float32
    )
    keys = tl.where(there, keys_of(value, token), LEAST)
    best = _gathered(tl.reshape(keys, [BEST * GROUP]), count, scratch + BEST, BEST, TOKEN_BITS)
    ahead = best[None, :] > best[:, None]
    place = tl.sum(ahead.to(tl.int32), 1)

    chunk = tl.arange(0, CHUNKS)
    top = tl.load(tops + row * chunks + chunk, mask=chunk < chunks, other=float("-inf"))
    part = tl.load(sums + row * chunks + chunk, mask=chunk < chunks, other=0.0)
    highest = tl.max(top, 0).to(tl.float64)
    total = tl.sum(tl.where(part > 0.0, part * tl.exp(top.to(tl.float64) - highest), part), 0)

    ordered = (best >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & LOW_WORD)
    result = bits.to(tl.float32, bitcast=True).to(tl.float64) - highest - tl.log(total)
    result = tl.where(result == result, tl.minimum(result, 0.0), float("-inf"))
    token = ((best & LOW_WORD).to(tl.int32) ^ LOW_WORD).to(tl.int64)
    tl.store(log_probs + row * count + place, result, mask=best != LEAST)
    tl.store(tokens + row * count + place, token, mask=best != LEAST)
