"""The Triton kernels of the device tree builder: best-first search without a heap, then what follows from the nodes.

The search is one program a request. Its frontier holds one entry more than there are nodes, so it stays in registers;
the best entry is a reduction. Equal weights are decided by the tuple of ranks, which an entry carries as three 63-bit
words of digits ``rank + 1``, zero past the end: the smaller words are the lexicographically smaller tuple, and a prefix
comes before its extensions. Nodes follow one another, so whatever can wait (tokens, links, what a node sees) waits for
the second kernel, which does it for all nodes at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

NEVER = tl.constexpr(float("-inf"))
LARGEST = tl.constexpr(0x7FFFFFFFFFFFFFFF)
FIELD = tl.constexpr(21)  # bits of a depth, a rank or a parent in an entry's word
FIELD_MASK = tl.constexpr((1 << 21) - 1)
ONE_RANK = tl.constexpr(1 << 21)


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
def search_trees(  # type: ignore[no-untyped-def]
    log_probs,
    parents,
    depths,
    ranks,
    weights,
    counts,
    length,
    width,
    stored,
    budget,
    NODES: tl.constexpr,
    BITS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Grid (requests,). ``stored``: candidates of a depth in memory; ``NODES``: a power of two above ``budget + 1``.

    ``WORDS``: of a key, as many as the depths need.
    """
    request = tl.program_id(0).to(tl.int64)
    count = budget + 1
    log_probs += request * length * stored
    entry = tl.arange(0, NODES)

    weight = tl.full((NODES,), NEVER, tl.float64)
    if length * width > 0:
        weight = tl.where(entry == 0, tl.load(log_probs), weight)
    weight = tl.where(weight == weight, weight, NEVER)
    base = tl.zeros((NODES,), tl.float64)  # weight of the parent
    word = tl.full((NODES,), 1, tl.int64)  # depth, rank and parent of the entry
    key_0 = tl.zeros((NODES,), tl.int64) + _digit(1, 0, BITS)
    key_1 = tl.zeros((NODES,), tl.int64)
    key_2 = tl.zeros((NODES,), tl.int64)
    node_word = tl.zeros((NODES,), tl.int64)
    node_weight = tl.zeros((NODES,), tl.float64)
    found = tl.full((), 1, tl.int32)

    for node in range(1, count):
        best = tl.max(weight, 0)
        tied = weight == best
        if tl.sum(tied.to(tl.int32), 0) > 1:
            least = tl.min(tl.where(tied, key_0, LARGEST), 0)
            tied = tied & (key_0 == least)
            if WORDS > 1:
                least = tl.min(tl.where(tied, key_1, LARGEST), 0)
                tied = tied & (key_1 == least)
            if WORDS > 2:
                least = tl.min(tl.where(tied, key_2, LARGEST), 0)
                tied = tied & (key_2 == least)
            tied = entry == tl.min(tl.where(tied, entry, NODES), 0)
        alive = best > NEVER
        # The same for each entry: the interpreter cannot spread a single truth value.
        chosen = tied & (entry * 0 + alive.to(tl.int32) > 0)
        its_word = tl.sum(tl.where(chosen, word, 0), 0)
        its_base = tl.sum(tl.where(chosen, base, 0.0), 0)
        its_depth = (its_word & FIELD_MASK).to(tl.int32)
        its_rank = ((its_word >> FIELD) & FIELD_MASK).to(tl.int32)
        row = log_probs + (its_depth - 1) * stored
        aside = tl.load(row + its_rank + 1, mask=alive & (its_rank + 1 < width), other=NEVER)
        below = tl.load(row + stored, mask=alive & (its_depth < length), other=NEVER)
        new = entry == node
        node_word = tl.where(new, its_word, node_word)
        node_weight = tl.where(new & (entry * 0 + alive.to(tl.int32) > 0), best, node_weight)
        found += alive.to(tl.int32)

        # Its next sibling takes its place in the frontier, its first child a new one.
        word = tl.where(chosen, word + ONE_RANK, word)
        child_word = (its_depth + 1).to(tl.int64) + (its_word * 0 + node) * ONE_RANK * ONE_RANK
        word = tl.where(new, child_word, word)
        its_key = tl.sum(tl.where(chosen, key_0, 0), 0)
        key_0 = tl.where(chosen, key_0 + _digit(its_depth, 0, BITS), key_0)
        key_0 = tl.where(new, its_key + _digit(its_depth + 1, 0, BITS), key_0)
        if WORDS > 1:
            its_key = tl.sum(tl.where(chosen, key_1, 0), 0)
            key_1 = tl.where(chosen, key_1 + _digit(its_depth, 1, BITS), key_1)
            key_1 = tl.where(new, its_key + _digit(its_depth + 1, 1, BITS), key_1)
        if WORDS > 2:
            its_key = tl.sum(tl.where(chosen, key_2, 0), 0)
            key_2 = tl.where(chosen, key_2 + _digit(its_depth, 2, BITS), key_2)
            key_2 = tl.where(new, its_key + _digit(its_depth + 1, 2, BITS), key_2)
        base = tl.where(new, best, base)
        weight = tl.where(chosen, its_base + aside, weight)
        weight = tl.where(new, best + below, weight)
        weight = tl.where(weight == weight, weight, NEVER)

    real, first_node = entry < count, request * count
    here = (entry > 0) & (entry < found)
    parent = tl.where(here, node_word >> FIELD >> FIELD, -1)
    tl.store(parents + first_node + entry, parent, mask=real)
    tl.store(depths + first_node + entry, tl.where(here, node_word & FIELD_MASK, 0), mask=real)
    rank = tl.where(here, (node_word >> FIELD) & FIELD_MASK, 0)
    tl.store(ranks + first_node + entry, rank, mask=real)
    tl.store(weights + first_node + entry, node_weight, mask=real)
    tl.store(counts + request, found.to(tl.int64))


@triton.jit  # type: ignore[untyped-decorator]
def link_trees(  # type: ignore[no-untyped-def]
    candidates,
    roots,
    parents,
    depths,
    ranks,
    counts,
    tokens,
    next_token,
    next_sibling,
    visible,
    length,
    stored,
    nodes,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Grid (requests, blocks of ``ROWS`` nodes). Token, first child, next sibling of each node, and what it sees."""
    request = tl.program_id(0).to(tl.int64)
    first = request * nodes
    node = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    real = node < nodes
    here = node < tl.load(counts + request)
    parent = tl.load(parents + first + node, mask=real, other=-1)
    depth = tl.load(depths + first + node, mask=real, other=0)
    rank = tl.load(ranks + first + node, mask=real, other=0)
    drafted = here & (node > 0)
    place = (request * length + depth - 1) * stored + rank
    token = tl.load(candidates + place, mask=drafted, other=0)
    token = tl.where(node == 0, tl.load(roots + request), token)
    tl.store(tokens + first + node, token, mask=real)

    child = tl.full((ROWS,), 0, tl.int64) + nodes
    sibling = tl.full((ROWS,), 0, tl.int64) + nodes
    cells = visible + (first + node)[:, None] * nodes
    for start in range(0, nodes, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        above = tl.load(parents + first + column, mask=column < nodes, other=-2)
        of_mine = above[None, :] == node[:, None].to(tl.int64)
        child = tl.minimum(child, tl.min(tl.where(of_mine, column[None, :], nodes), 1))
        beside = (above[None, :] == parent[:, None]) & (column[None, :] > node[:, None])
        beside = beside & (parent >= 0)[:, None]
        sibling = tl.minimum(sibling, tl.min(tl.where(beside, column[None, :], nodes), 1))
        itself = (column[None, :] == node[:, None]).to(tl.int8)
        tl.store(cells + column[None, :], itself, mask=real[:, None] & (column < nodes)[None, :])
    tl.store(next_token + first + node, tl.where(child < nodes, child, -1), mask=real)
    tl.store(next_sibling + first + node, tl.where(sibling < nodes, sibling, -1), mask=real)

    tl.debug_barrier()
    one = tl.full((ROWS,), 1, tl.int8)
    for _ in range(length):
        climbing = real & (parent >= 0)
        tl.store(visible + (first + node) * nodes + parent, one, mask=climbing)
        parent = tl.load(parents + first + parent, mask=climbing, other=-1)
