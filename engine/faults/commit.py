"""Faults of the KV commit."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from engine.decoding.stages import Stages
from engine.models.kv_pool import KVPool


def crop_commit(stages: Stages) -> Stages:
    """Nothing is moved: the first slots keep nodes 0 … n-1, whichever nodes were accepted."""

    def compact(pool: KVPool, slots: Tensor, accepted: Tensor) -> None:
        return None

    return replace(stages, compact=compact)


def gather_twice(stages: Stages) -> Stages:
    """The accepted rows are gathered a second time, from rows that have already moved."""

    def compact(pool: KVPool, slots: Tensor, accepted: Tensor) -> None:
        stages.compact(pool, slots, accepted)
        stages.compact(pool, slots, accepted)

    return replace(stages, compact=compact)


def skip_last_layer(stages: Stages) -> Stages:
    """The last layer's buffer is not moved with the others."""

    def compact(pool: KVPool, slots: Tensor, accepted: Tensor) -> None:
        kept = [tensor[slots].clone() for tensor in (pool.k[-1], pool.v[-1])]
        stages.compact(pool, slots, accepted)
        for tensor, old in zip((pool.k[-1], pool.v[-1]), kept, strict=True):
            tensor[slots] = old

    return replace(stages, compact=compact)


def hidden_rows_without_root(stages: Stages) -> Stages:
    """The drafter gets the hidden states one row late: the root's are left out, the last one's come twice."""

    def hidden_rows(path: list[int]) -> list[int]:
        return [*path[1:], path[-1]]

    return replace(stages, hidden_rows=hidden_rows)
