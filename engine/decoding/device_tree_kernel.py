"""The Triton kernel of the device tree builder: one program a request, best-first search without a heap.

The frontier holds one entry more than there are nodes, so it stays in registers; the best entry is a reduction. Equal
weights are decided by the tuple of ranks, which an entry carries as three 63-bit words of digits ``rank + 1``, zero
past the end: the smaller words are the lexicographically smaller tuple, and a prefix comes before its extensions.
"""

from __future__ import annotations

import triton
import triton.language as tl

NEVER = tl.constexpr(float("-inf"))
LARGEST = tl.constexpr(0x7FFFFFFFFFFFFFFF)


@triton.jit  # type: ignore[untyped-decorator]
def _digit(depth, word: tl.constexpr, BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """What one more at this depth adds to that word of a key."""
    per_word: tl.constexpr = 63 // BITS
    place = depth - 1 - word * per_word
    inside = (place >= 0) & (place < per_word)
    one = tl.full((), 1, tl.int64)
    return tl.where(
        inside, one << (BITS * (per_word - 1 - tl.where(inside, place, 0))).to(tl.int64), 0
    )


@triton.jit  # type: ignore[untyped-decorator]
def grow_trees(  # type: ignore[no-untyped-def]
    log_probs,
    candidates,
    roots,
    parents,
    tokens,
    depths,
    ranks,
    weights,
    next_token,
    next_sibling,
    visible,
    counts,
    length,
    width,
    stored,
    budget,
    NODES: tl.constexpr,
    BITS: tl.constexpr,
):
    """Grid (requests,). ``stored``: candidates of a depth in memory; ``NODES``: a power of two above ``budget + 1``."""
    request = tl.program_id(0).to(tl.int64)
    count = budget + 1
    log_probs += request * length * stored
    candidates += request * length * stored
    first_node, first_cell = request * count, request * count * count
    entry = tl.arange(0, NODES)
    real = entry < count

    weight = tl.full((NODES,), NEVER, tl.float64)
    if length * width > 0:
        weight = tl.where(entry == 0, tl.load(log_probs), weight)
    base = tl.zeros((NODES,), tl.float64)  # weight of the parent
    depth = tl.full((NODES,), 1, tl.int32)
    rank = tl.zeros((NODES,), tl.int32)
    parent = tl.zeros((NODES,), tl.int32)
    key_0 = tl.zeros((NODES,), tl.int64) + _digit(1, 0, BITS)
    key_1 = tl.zeros((NODES,), tl.int64)
    key_2 = tl.zeros((NODES,), tl.int64)

    child = tl.full((NODES,), -1, tl.int32)  # first of each node
    youngest = tl.full((NODES,), -1, tl.int32)
    sibling = tl.full((NODES,), -1, tl.int32)
    found = tl.full((), 1, tl.int32)

    tl.store(parents + first_node + entry, tl.full((NODES,), -1, tl.int64), mask=real)
    tl.store(tokens + first_node + entry, tl.zeros((NODES,), tl.int64), mask=real)
    tl.store(depths + first_node + entry, tl.zeros((NODES,), tl.int64), mask=real)
    tl.store(ranks + first_node + entry, tl.zeros((NODES,), tl.int64), mask=real)
    tl.store(weights + first_node + entry, tl.zeros((NODES,), tl.float64), mask=real)
    tl.debug_barrier()
    tl.store(tokens + first_node, tl.load(roots + request))
    tl.store(visible + first_cell + entry, (entry == 0).to(tl.int8), mask=real)

    for node in range(1, count):
        best = tl.max(weight, 0)
        tied = weight == best
        least = tl.min(tl.where(tied, key_0, LARGEST), 0)
        tied = tied & (key_0 == least)
        least = tl.min(tl.where(tied, key_1, LARGEST), 0)
        tied = tied & (key_1 == least)
        least = tl.min(tl.where(tied, key_2, LARGEST), 0)
        tied = tied & (key_2 == least)
        alive = best > NEVER
        # The same for each entry: the interpreter cannot spread a single truth value.
        living = entry * 0 + alive.to(tl.int32) > 0
        at = tl.min(tl.where(tied, entry, NODES), 0)
        chosen = (entry == at) & living
        its_depth = tl.sum(tl.where(chosen, depth, 0), 0)
        its_rank = tl.sum(tl.where(chosen, rank, 0), 0)
        its_parent = tl.sum(tl.where(chosen, parent, 0), 0)
        its_base = tl.sum(tl.where(chosen, base, 0.0), 0)
        its_key_0 = tl.sum(tl.where(chosen, key_0, 0), 0)
        its_key_1 = tl.sum(tl.where(chosen, key_1, 0), 0)
        its_key_2 = tl.sum(tl.where(chosen, key_2, 0), 0)
        row = (its_depth - 1) * stored
        token = tl.load(candidates + row + its_rank, mask=alive, other=0)

        # The node, and what it sees: what its parent sees, and itself. One that could not be found sees itself.
        tl.debug_barrier()
        above = tl.load(
            visible + first_cell + its_parent * count + entry, mask=real & living, other=0
        )
        seen = tl.where(entry == node, 1, above.to(tl.int32))
        tl.store(visible + first_cell + node * count + entry, seen.to(tl.int8), mask=real)
        tl.store(parents + first_node + node, its_parent.to(tl.int64), mask=alive)
        tl.store(tokens + first_node + node, token, mask=alive)
        tl.store(depths + first_node + node, its_depth.to(tl.int64), mask=alive)
        tl.store(ranks + first_node + node, its_rank.to(tl.int64), mask=alive)
        tl.store(weights + first_node + node, best, mask=alive)
        found += alive.to(tl.int32)

        of_parent = (entry == its_parent) & living
        elder = tl.sum(tl.where(of_parent, youngest, 0), 0)
        child = tl.where(of_parent & (child < 0), node, child)
        sibling = tl.where((entry == elder) & (entry * 0 + elder >= 0) & living, node, sibling)
        youngest = tl.where(of_parent, node, youngest)

        # Its next sibling takes its place in the frontier, its first child a new one.
        further = alive & (its_rank + 1 < width)
        value = tl.load(log_probs + row + its_rank + 1, mask=further, other=NEVER)
        weight = tl.where(chosen, its_base + value, weight)
        rank = tl.where(chosen, its_rank + 1, rank)
        key_0 = tl.where(chosen, its_key_0 + _digit(its_depth, 0, BITS), key_0)
        key_1 = tl.where(chosen, its_key_1 + _digit(its_depth, 1, BITS), key_1)
        key_2 = tl.where(chosen, its_key_2 + _digit(its_depth, 2, BITS), key_2)
        deeper = alive & (its_depth < length)
        value = tl.load(log_probs + row + stored, mask=deeper, other=NEVER)
        new = entry == node
        weight = tl.where(new, best + value, weight)
        weight = tl.where(weight == weight, weight, NEVER)
        base = tl.where(new, best, base)
        depth = tl.where(new, its_depth + 1, depth)
        rank = tl.where(new, 0, rank)
        parent = tl.where(new, node, parent)
        key_0 = tl.where(new, its_key_0 + _digit(its_depth + 1, 0, BITS), key_0)
        key_1 = tl.where(new, its_key_1 + _digit(its_depth + 1, 1, BITS), key_1)
        key_2 = tl.where(new, its_key_2 + _digit(its_depth + 1, 2, BITS), key_2)

    tl.store(next_token + first_node + entry, child.to(tl.int64), mask=real)
    tl.store(next_sibling + first_node + entry, sibling.to(tl.int64), mask=real)
    tl.store(counts + request, found.to(tl.int64))
