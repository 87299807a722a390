"""KV commit, and what it really left: each new position's memory is looked up among the rows that were there before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decoding.stages import Stages
from engine.models.device import HOST, to_device, to_host
from engine.models.kv_pool import KVPool


def watched_layers(pool: KVPool) -> list[int]:
    """Second, middle and last layer.

    Not the first: its keys depend on token and position alone, so nodes of different branches can be equal there.
    """
    last = len(pool.k) - 1
    return sorted({min(1, last), (last + 1) // 2, last})


@dataclass(frozen=True, eq=False)
class Committed:
    """What one request's commit left, as the device found it."""

    path: list[int]  # accepted nodes
    # Whether the new position holds what this node's row held.
    same: Tensor  # bool [layers, len(path), q_len]


def compact_and_trace(stages: Stages, pool: KVPool, slots: Tensor, path: list[int]) -> Committed:
    """Compact one request and compare, a watched layer, each newly committed position with every row before.

    ``slots``: int64 [q_len] on the host, where the request's rows were written; ``path``: accepted nodes.
    """
    layers, there = watched_layers(pool), to_device(slots, pool.k[0].device)
    before = [rows_held(pool, layer, there) for layer in layers]
    stages.compact(pool, slots, torch.tensor(path, device=HOST))
    after = [rows_held(pool, layer, there[: len(path)]) for layer in layers]
    pairs = zip(before, after, strict=True)
    return Committed(path, torch.stack([(new[:, None] == old).all(-1) for old, new in pairs]))


def nodes_held(layers: list[int], commits: list[Committed]) -> dict[int, list[list[int]]]:
    """Layer -> request -> the node whose memory each new position holds, -1: no node's. One copy to the host."""
    flat = to_host(torch.cat([commit.same.flatten() for commit in commits])).numpy()
    held: dict[int, list[list[int]]] = {layer: [] for layer in layers}
    start = 0
    for commit in commits:
        end = start + commit.same.numel()
        tables = flat[start:end].reshape(commit.same.shape).tolist()
        for layer, rows in zip(layers, tables, strict=True):
            held[layer].append(list(map(_holder, rows, commit.path)))
        start = end
    return held


def rows_held(pool: KVPool, layer: int, slots: Tensor) -> Tensor:
    """Memory of slots as integers, keys and values side by side, [n, …]; a copy. NaN thus equals itself."""
    both = torch.cat([pool.k[layer][slots], pool.v[layer][slots]], dim=-1).flatten(1)
    return both.view(torch.int16 if both.element_size() == 2 else torch.int32)


def _holder(same: list[bool], expected: int) -> int:
    """The node of a new row, -1 for none; the expected one where several are equal."""
    if same[expected]:
        return expected
    return same.index(True) if True in same else -1
