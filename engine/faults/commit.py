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
