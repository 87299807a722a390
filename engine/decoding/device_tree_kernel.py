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
    words,
    weights,
    counts,
    length,
    width,
    stored,
    budget,
    ENTRIES: tl.constexpr,
    BITS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Grid (requests,). ``stored``: candidates of a depth in memory; ``ENTRIES``: a power of two, at least ``budget``.

    Leaves one word and the weight of each node found. ``WORDS``: of a key, as many as the depths need.
    """
    request = tl.program_id(0).to(tl.int64)
    count = budget + 1
    log_probs += request * length * stored
    words += request * count
    weights += request * count
    entry = tl.arange(0, ENTRIES)

    weight = tl.full((ENTRIES,), NEVER, tl.float64)
    if length * width > 0:
        weight = tl.where(entry == 0, tl.load(log_probs), weight)
    weight = tl.where(weight == weight, weight, NEVER)
    base = tl.zeros((ENTRIES,), tl.float64)  # weight of the parent
    word = tl.full((ENTRIES,), 1, tl.int64)  # depth, rank and parent of the entry
    key_0 = tl.zeros((ENTRIES,), tl.int64) + _digit(1, 0, BITS)
    key_1 = tl.zeros((ENTRIES,), tl.int64)
    key_2 = tl.zeros((ENTRIES,), tl.int64)
    found = tl.full((), 1, tl.int32)
    tl.store(weights, tl.zeros((), tl.float64))

    for node in range(1, count):
        best = tl.max(weight, 0)
        chosen = (weight == best) & (weight > NEVER)
        its_word = tl.sum(tl.where(chosen, word, 0), 0)
        its_base = tl.sum(tl.where(chosen, base, 0.0), 0)
        tied = tl.sum(chosen.to(tl.int32), 0)
        if tied > 1:
            least = tl.min(tl.where(chosen, key_0, LARGEST), 0)
            chosen = chosen & (key_0 == least)
            if WORDS > 1:
                least = tl.min(tl.where(chosen, key_1, LARGEST), 0)
                chosen = chosen & (key_1 == least)
            if WORDS > 2:
                least = tl.min(tl.where(chosen, key_2, LARGEST), 0)
                chosen = chosen & (key_2 == least)
            its_word = tl.sum(tl.where(chosen, word, 0), 0)
            its_base = tl.sum(tl.where(chosen, base, 0.0), 0)
        alive = tied > 0
        its_depth = (its_word & FIELD_MASK).to(tl.int32)
        its_rank = ((its_word >> FIELD) & FIELD_MASK).to(tl.int32)
        row = log_probs + (its_depth - 1) * stored
        aside = tl.load(row + its_rank + 1, mask=alive & (its_rank + 1 < width), other=NEVER)
        below = tl.load(row + stored, mask=alive & (its_depth < length), other=NEVER)
        tl.store(words + node, its_word, mask=alive)
        tl.store(weights + node, tl.where(alive, best, 0.0))
        found += alive.to(tl.int32)

        # Its next sibling takes its place in the frontier, its first child a new one.
        new = entry == node
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
    tl.store(counts + request, found.to(tl.int64))


@triton.jit  # type: ignore[untyped-decorator]
def link_trees(  # type: ignore[no-untyped-def]
    words,
    counts,
    candidates,
    roots,
    parents,
    depths,
    ranks,
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
    """Grid (requests, blocks of ``ROWS`` nodes). All that follows from the words of the nodes found."""
    request = tl.program_id(0).to(tl.int64)
    first = request * nodes
    found = tl.load(counts + request)
    node = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    real, drafted = node < nodes, (node > 0) & (node < found)
    word = tl.load(words + first + node, mask=drafted, other=0)
    parent = tl.where(drafted, word >> FIELD >> FIELD, -1)
    depth, rank = word & FIELD_MASK, (word >> FIELD) & FIELD_MASK
    place = (request * length + depth - 1) * stored + rank
    token = tl.load(candidates + place, mask=drafted, other=0)
    token = tl.where(node == 0, tl.load(roots + request), token)
    tl.store(parents + first + node, parent, mask=real)
    tl.store(depths + first + node, depth, mask=real)
    tl.store(ranks + first + node, rank, mask=real)
    tl.store(tokens + first + node, token, mask=real)

    child = tl.full((ROWS,), 0, tl.int64) + nodes
    sibling = tl.full((ROWS,), 0, tl.int64) + nodes
    cells = visible + (first + node)[:, None] * nodes
    for start in range(0, nodes, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        theirs = (column > 0) & (column < found)
        above = tl.load(words + first + column, mask=theirs, other=0) >> FIELD >> FIELD
        above = tl.where(theirs, above, -2)
        of_mine = above[None, :] == node[:, None].to(tl.int64)
        child = tl.minimum(child, tl.min(tl.where(of_mine, column[None, :], nodes), 1))
        beside = (above[None, :] == parent[:, None]) & (column[None, :] > node[:, None])
        sibling = tl.minimum(sibling, tl.min(tl.where(beside, column[None, :], nodes), 1))
        itself = (column[None, :] == node[:, None]).to(tl.int8)
        tl.store(cells + column[None, :], itself, mask=real[:, None] & (column < nodes)[None, :])
    tl.store(next_token + first + node, tl.where(child < nodes, child, -1), mask=real)
    tl.store(next_sibling + first + node, tl.where(sibling < nodes, sibling, -1), mask=real)

    tl.debug_barrier()
    one = tl.full((ROWS,), 1, tl.int8)
    climber = parent
    for _ in range(length):
        climbing = climber >= 0
        tl.store(visible + (first + node) * nodes + climber, one, mask=climbing)
        above = tl.load(words + first + climber, mask=climber > 0, other=0) >> FIELD >> FIELD
        climber = tl.where(climber > 0, above, -1)
