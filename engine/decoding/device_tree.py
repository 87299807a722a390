"""The DDTree builder on the device: the same trees as :mod:`engine.decoding.best_first`, without a trip to the host.

Shapes are fixed by batch and budget, nothing is read by the host, and a CUDA graph may capture it. A Triton kernel on a
GPU; its plain torch twin, which searches level by level instead, elsewhere.

The twin keeps the ``budget`` best prefixes of each depth, then the ``budget`` best of all depths. That is the same set:
a node among the best of all is among the best of its depth, and so is its parent.

Covered: ties as on the host (the lexicographically smaller tuple of ranks), candidates that run out. Not covered: the
best tokens of each position (:func:`engine.decoding.best_first.top_candidates`), spines.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

try:
    import triton
except ImportError:  # Triton has no build for this platform; the twin serves
    triton = None
else:
    from engine.decoding import device_tree_kernel as kernels

WORDS = 3  # of a key
WORD_BITS = 63
LINKED = 16  # nodes of one program of the second kernel


@dataclass(frozen=True, eq=False)
class TreeTensors:
    """Trees of a batch, each of ``budget + 1`` nodes in the order of their weight; the root is node 0.

    Where candidates ran out, the nodes from ``counts`` on have parent -1, token 0, depth 0, no links, and see
    themselves.
    """

    parents: Tensor  # int64 [bs, nodes]
    tokens: Tensor  # int64 [bs, nodes]
    depths: Tensor  # int64 [bs, nodes]
    ranks: Tensor  # int64 [bs, nodes]: of each node's token at its depth
    log_weights: Tensor  # float64 [bs, nodes]
    retrieve_next_token: Tensor  # int64 [bs, nodes]: first child or -1
    retrieve_next_sibling: Tensor  # int64 [bs, nodes]
    visible: (
        Tensor  # int8 [bs, nodes, nodes]: 1 where the node of the column is on the row's root path
    )
    counts: Tensor  # int64 [bs]: nodes, the root included

    def positions(self, prefix_lens: Tensor) -> Tensor:
        """Position of each node: prefix length int64 [bs] + depth."""
        return prefix_lens[:, None] + self.depths


def grow_on_device(
    log_probs: Tensor, candidates: Tensor, roots: Tensor, budget: int, width: int | None = None
) -> TreeTensors:
    """Trees from ``log_probs`` float64 and ``candidates`` int64 [bs, L, K], descending, and ``roots`` int64 [bs].

    ``width``: ranks that a depth may use, None for all. Raises ``ValueError`` for a budget or depth beyond the keys.
    """
    run = grow_triton if log_probs.is_cuda and triton is not None else grow_torch
    return run(log_probs, candidates, roots, budget, width)


def grow_triton(
    log_probs: Tensor, candidates: Tensor, roots: Tensor, budget: int, width: int | None = None
) -> TreeTensors:
    """:func:`grow_on_device` by the kernel."""
    width, bits = _limits(log_probs, budget, width)
    batch, length, stored = log_probs.shape
    nodes = budget + 1

    def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=log_probs.device)

    out = TreeTensors(
        empty(batch, nodes),
        empty(batch, nodes),
        empty(batch, nodes),
        empty(batch, nodes),
        empty(batch, nodes, dtype=torch.float64),
        empty(batch, nodes),
        empty(batch, nodes),
        empty(batch, nodes, nodes, dtype=torch.int8),
        empty(batch),
    )
    if batch:
        words = empty(batch, nodes)
        kernels.search_trees[(batch,)](
            log_probs.contiguous(),
            words,
            out.log_weights,
            out.counts,
            length,
            width,
            stored,
            budget,
            ENTRIES=triton.next_power_of_2(max(budget, 1)),
            BITS=bits,
            WORDS=max(1, -(-length // (WORD_BITS // bits))),
            num_warps=1,
        )
        rows = min(LINKED, triton.next_power_of_2(nodes))
        kernels.link_trees[(batch, triton.cdiv(nodes, rows))](
            words,
            out.counts,
            candidates.contiguous(),
            roots,
            out.parents,
            out.depths,
            out.ranks,
            out.tokens,
            out.retrieve_next_token,
            out.retrieve_next_sibling,
            out.visible,
            length,
            stored,
            nodes,
            ROWS=rows,
            COLUMNS=64,
            num_warps=4,
        )
    return out


def grow_torch(
    log_probs: Tensor, candidates: Tensor, roots: Tensor, budget: int, width: int | None = None
) -> TreeTensors:
    """:func:`grow_on_device` in plain torch, level by level."""
    width, bits = _limits(log_probs, budget, width)
    batch, length, _ = log_probs.shape
    device, nodes = log_probs.device, budget + 1
    table = log_probs[:, :, :width]
    table = torch.where(table.isfinite(), table, -torch.inf)
    ranks = torch.arange(width, device=device)
    # A level: its prefixes' weights [bs, n], words of keys [bs, n, 3], last ranks, and places in the level before.
    weight = torch.zeros(batch, 1, dtype=torch.float64, device=device)
    keys = torch.zeros(batch, 1, WORDS, dtype=torch.int64, device=device)
    levels: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for depth in range(length if budget else 0):
        grown = (weight[:, :, None] + table[:, depth, None, :]).flatten(1)
        word, place = divmod(depth, WORD_BITS // bits)
        longer = keys[:, :, None, :].repeat(1, 1, width, 1)
        longer[..., word] += (ranks + 1) << (bits * (WORD_BITS // bits - 1 - place))
        longer = longer.flatten(1, 2)
        order = _order(grown, longer)[:, :budget]
        weight, keys = grown.gather(1, order), _rows(longer, order)
        levels.append((weight, keys, order % width, order // width))
    return _joined(levels, candidates, roots, nodes)


def _joined(
    levels: list[tuple[Tensor, Tensor, Tensor, Tensor]],
    candidates: Tensor,
    roots: Tensor,
    nodes: int,
) -> TreeTensors:
    """The best of all levels, numbered by weight."""
    batch, device = len(roots), roots.device
    out = {
        name: torch.zeros(batch, nodes, dtype=torch.int64, device=device)
        for name in ("parents", "tokens", "depths", "ranks", "child", "sibling")
    }
    for name in ("parents", "child", "sibling"):
        out[name].fill_(-1)
    weights = torch.zeros(batch, nodes, dtype=torch.float64, device=device)
    visible = torch.eye(nodes, dtype=torch.int8, device=device).repeat(batch, 1, 1)
    counts = torch.ones(batch, dtype=torch.int64, device=device)
    out["tokens"][:, 0] = roots
    for request in range(batch):
        found = [
            (-float(weight), tuple(words), depth, place, int(rank), int(parent))
            for depth, level in enumerate(levels, start=1)
            for place, (weight, words, rank, parent) in enumerate(
                zip(*(part[request].tolist() for part in level), strict=True)
            )
            if weight > -torch.inf
        ]
        numbers = {(0, 0): 0}
        youngest: dict[int, int] = {}
        for node, (negative, _, depth, place, rank, above) in enumerate(
            sorted(found)[: nodes - 1], start=1
        ):
            numbers[depth, place] = node
            parent = numbers[depth - 1, above]
            out["parents"][request, node] = parent
            out["tokens"][request, node] = candidates[request, depth - 1, rank]
            out["depths"][request, node] = depth
            out["ranks"][request, node] = rank
            weights[request, node] = -negative
            visible[request, node] |= visible[request, parent]
            elder = youngest.get(parent)
            if elder is None:
                out["child"][request, parent] = node
            else:
                out["sibling"][request, elder] = node
            youngest[parent] = node
            counts[request] = node + 1
    return TreeTensors(
        out["parents"],
        out["tokens"],
        out["depths"],
        out["ranks"],
        weights,
        out["child"],
        out["sibling"],
        visible,
        counts,
    )


def _order(weights: Tensor, keys: Tensor) -> Tensor:
    """Places by descending weight, then by ascending key, int64 [bs, n]."""
    order = torch.arange(weights.shape[1], device=weights.device).expand_as(weights)
    for word in reversed(range(keys.shape[2])):
        order = order.gather(1, keys[..., word].gather(1, order).argsort(dim=1, stable=True))
    return order.gather(1, weights.gather(1, order).argsort(dim=1, descending=True, stable=True))


def _rows(table: Tensor, order: Tensor) -> Tensor:
    """``table`` [bs, n, 3] in another order."""
    return table.gather(1, order[:, :, None].expand(-1, -1, table.shape[2]))


def _limits(log_probs: Tensor, budget: int, width: int | None) -> tuple[int, int]:
    """Ranks that a depth may use, and bits of a digit."""
    _, length, stored = log_probs.shape
    width = min(stored, max(budget, 1) if width is None else width)
    bits = max(width.bit_length(), 1)
    if budget < 0 or length > WORDS * (WORD_BITS // bits):
        most = WORDS * (WORD_BITS // bits)
        raise ValueError(
            f"expected budget >= 0 and at most {most} depths of {width} ranks, found {budget} and {length}"
        )
    return width, bits
