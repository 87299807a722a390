"""KV commit, and what it really left: each new position's memory is looked up among the rows that were there before."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.decoding.stages import Stages
from engine.models.kv_pool import KVPool


def watched_layers(pool: KVPool) -> list[int]:
    """Second, middle and last layer.

    Not the first: its keys depend on token and position alone, so nodes of different branches can be equal there.
    """
    last = len(pool.k) - 1
    return sorted({min(1, last), (last + 1) // 2, last})


def compact_and_trace(
    stages: Stages, pool: KVPool, slots: Tensor, path: list[int]
) -> dict[int, list[int]]:
    """Compact one request and return, a watched layer, the node that each newly committed position holds.

    ``slots``: int64 [q_len], where the request's rows were written; ``path``: accepted nodes. -1: no node's memory.
    """
    layers = watched_layers(pool)
    before = {layer: _rows(pool, layer, slots) for layer in layers}
    stages.compact(pool, slots, torch.tensor(path))
    return {
        layer: _holders(before[layer], _rows(pool, layer, slots[: len(path)]), path)
        for layer in layers
    }


def _rows(pool: KVPool, layer: int, slots: Tensor) -> Tensor:
    """Memory of slots as integers, keys and values side by side, [n, …]; a copy. NaN thus equals itself."""
    both = torch.cat([pool.k[layer][slots], pool.v[layer][slots]], dim=-1).flatten(1)
    return both.view(torch.int16 if both.element_size() == 2 else torch.int32)


def _holders(before: Tensor, after: Tensor, expected: list[int]) -> list[int]:
    """Node of each new row, -1 for none; the expected node where several are equal."""
    nodes = []
    for row, wanted in zip(after, expected, strict=True):
        same = (before == row).all(dim=1).nonzero().flatten().tolist()
        nodes.append(wanted if wanted in same else (same[0] if same else -1))
    return nodes
