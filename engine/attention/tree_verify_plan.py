"""How tree-verify attention is laid out over a GPU: rows of a tile, keys of a tile, parts of the prefix.

Nothing here looks at a tensor's content: a plan depends on shapes alone, so it is the same at capture and at replay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

MAX_SPLITS = 16  # the merge loads all parts of a row at once
LEAST_KEYS = 64
GROUP_ROWS, REST_ROWS = (
    64,
    8,
)  # packed rows of a warpgroup on Hopper, and of the one that takes what is left
# Of writing and reading one number of a part's sums, in walks of a program over its whole prefix of, say, 4096 keys: 8
# bytes at 4 TB/s against 1.33 µs a tile of 64 keys (42.7 µs for 32 tiles with all keys in L2), on an H200.
MERGE_COST = 2.4e-8


@dataclass(frozen=True)
class Plan:
    """Constants of one launch."""

    rows: int  # packed rows of a tile: a power of two, or 64 * groups + 8
    tiles: int  # programs that share a request's rows
    keys: int  # prefix keys of one tile
    splits: int  # parts of the prefix at most
    least: int  # keys that are worth a part
    warps: int
    stages: int
    cost: float = 0.0  # in walks over a whole prefix
    groups: int = 0  # warpgroups of 64 rows of the kernel for Hopper's matrix units, 1 or 2; 0: the plain kernel


def query_tile(head_dim: int, device: torch.device) -> int:
    """Rows of one program of SGLang's kernel there: its launch grid covers whole tiles of them."""
    if device.type != "cuda":
        return 64
    return query_tile_of(head_dim, torch.cuda.get_device_capability(device))


def query_tile_of(head_dim: int, capability: tuple[int, int]) -> int:
    """The same by compute capability, as SGLang 0.5.12 chooses it for heads of at most 256."""
    major, minor = capability
    if major == 9 or major == 11 or major > 12:
        return 128
    if major == 8 and minor not in (6, 9):
        return 128 if head_dim <= 128 else 64
    if major < 8 and head_dim > 128:
        return 32
    return 64


def make_plan(
    batch: int,
    rows: int,
    kv_heads: int,
    group: int,
    head_dim: int,
    dtype: torch.dtype,
    processors: int,
    hopper: bool = False,
) -> Plan:
    """``rows`` a request (``max_len_extend``) on a chip of so many multiprocessors.

    How long the prefixes are is not known here; they are taken for long, and a launch with fewer keys than parts are
    worth uses fewer parts. ``hopper``: the kernel for Hopper's matrix units covers the case. It is taken where the rows
    of a request times the heads of a group are more than one of its warpgroups takes, and with heads of 128 from 32 on:
    on an H200, fewer rows were not measured, and with heads of 64 it was no faster there.
    """
    packed, pairs = max(rows, 1) * group, batch * kv_heads
    if hopper and (packed > GROUP_ROWS or (head_dim == 128 and packed >= 32)):
        groups = 1 if packed <= GROUP_ROWS + REST_ROWS else 2
        tile = groups * GROUP_ROWS + REST_ROWS
        plan = _plan(tile, 64, pairs, packed, head_dim, processors, warps=4, stages=7 - groups)
        return replace(plan, groups=groups)
    if dtype.itemsize > 2:  # exact products of float32 don't run on matrix units
        return _plan(16, 32, pairs, packed, head_dim, 2 * processors, warps=4, stages=2)
    if packed <= 64:
        tile = max(16, 1 << (packed - 1).bit_length())
        return _plan(tile, 64, pairs, packed, head_dim, 2 * processors, warps=4, stages=2)
    stages = 3 if head_dim <= 128 else 2
    narrow = _plan(64, 64, pairs, packed, head_dim, 2 * processors, warps=4, stages=stages)
    wide = _plan(128, 64, pairs, packed, head_dim, processors, warps=8, stages=stages)
    return min(narrow, wide, key=lambda plan: plan.cost)


def _plan(
    tile: int,
    keys: int,
    pairs: int,
    packed: int,
    head_dim: int,
    resident: int,
    *,
    warps: int,
    stages: int,
) -> Plan:
    """The number of parts that costs least, with ``resident`` programs on the chip at once."""
    tiles = -(-packed // tile)

    def cost(splits: int) -> float:
        waves = -(-pairs * tiles * splits // resident)
        return waves / splits + MERGE_COST * splits * pairs * packed * head_dim

    splits = min(range(1, MAX_SPLITS + 1), key=cost)
    return Plan(tile, tiles, keys, splits, LEAST_KEYS, warps, stages, cost(splits))
