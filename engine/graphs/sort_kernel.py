"""The largest keys of a tile, in descending order: Batcher's bitonic sort (1968), cut short after each merge.

The tile is seen as a hypercube with an axis of length 2 for each bit of an index: partners at a distance of 2^b then
lie along one axis. ``tl.topk`` gives the same; in the interpreter it takes thirty times as long.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _bit(DIMS: tl.constexpr, b: tl.constexpr):  # type: ignore[no-untyped-def]
    """Bit ``b`` of each index of a hypercube of ``DIMS`` axes."""
    return tl.reshape(tl.arange(0, 2), [1] * (DIMS - b - 1) + [2] + [1] * b)


@triton.jit  # type: ignore[untyped-decorator]
def _exchanged(cube, down, DIMS: tl.constexpr, b: tl.constexpr):  # type: ignore[no-untyped-def]
    """Partners at a distance of 2^b in order: the larger one first where ``down`` is 1."""
    partner = tl.sum(cube, DIMS - 1 - b, keep_dims=True) - cube
    wants_less = (down ^ _bit(DIMS, b)) == 0
    return tl.where((cube > partner) == wants_less, partner, cube)


@triton.jit  # type: ignore[untyped-decorator]
def _merged(cube, DIMS: tl.constexpr, STAGE: tl.constexpr, LAST: tl.constexpr):  # type: ignore[no-untyped-def]
    """Bitonic runs of 2^STAGE integers sorted, every other one descending; the last merge descending."""
    if LAST:
        down = _bit(DIMS, 0) * 0 + 1
    else:
        down = _bit(DIMS, STAGE)
    for step in tl.static_range(STAGE):
        cube = _exchanged(cube, down, DIMS, STAGE - 1 - step)
    return cube


@triton.jit  # type: ignore[untyped-decorator]
def largest(x, LOG_N: tl.constexpr, LOG_K: tl.constexpr):  # type: ignore[no-untyped-def]
    """The 2^LOG_K largest of 2^LOG_N integers, descending; 1 <= LOG_K <= LOG_N."""
    cube = tl.reshape(x, [2] * LOG_N)
    for stage in tl.static_range(1, LOG_K + 1):
        cube = _merged(cube, LOG_N, stage, stage == LOG_N)
    for gone in tl.static_range(1, LOG_N - LOG_K + 1):
        # Runs alternate in direction: the larger of each pair of places are the larger half, and bitonic again.
        cube = tl.max(cube, LOG_N - gone - LOG_K)
        cube = _merged(cube, LOG_N - gone, LOG_K, gone == LOG_N - LOG_K)
    K: tl.constexpr = 1 << LOG_K
    return tl.reshape(cube, [K])
