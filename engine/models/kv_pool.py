"""Slot-addressed KV memory as SGLang lays it out: a token's keys and values live in one slot of
every layer.

Three parts: the tensors (KVPool), the map from a request's positions to slots (ReqToTokenPool) and
the free list (SlotAllocator). Slot 0 and request row 0 are never handed out: padded rows write
there and nobody reads them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.models.config import DecoderConfig
from engine.models.device import HOST, to_device
from engine.models.free_list import FreeList, PoolExhausted

__all__ = ["KVPool", "PoolExhausted", "ReqToTokenPool", "SlotAllocator"]

PADDING_SLOT = 0
PADDING_REQUEST = 0


class KVPool:
    """Keys and values of all layers: ``keys`` and ``values`` [layers, num_slots, num_kv_heads, head_dim],
    and their layers one by one as ``k`` and ``v``.
    """

    def __init__(
        self,
        config: DecoderConfig,
        num_slots: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (config.num_layers, num_slots, config.num_kv_heads, config.head_dim)
        self.num_slots = num_slots
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.k, self.v = list(self.keys), list(self.values)

    def store(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Write k and v [rows, num_kv_heads, head_dim] of one layer to slots int64 [rows].

        Rows that share a slot other than the padding slot leave it undefined; callers never pass
        any.
        """
        self.k[layer].index_copy_(0, slots, k)
        self.v[layer].index_copy_(0, slots, v)

    def move(self, target_slots: Tensor, source_slots: Tensor) -> None:
        """Copy slots source int64 [n] to target int64 [n] in all layers; sources are read before
        any write. Slots may lie on the host.

        target [1, 2] with source [2, 3] thus leaves the old slot 2 in 1 and the old slot 3 in 2.
        """
        if target_slots.shape != source_slots.shape:
            raise ValueError(
                f"move: expected as many target as source slots, "
                f"found {list(target_slots.shape)} and {list(source_slots.shape)}"
            )
        device = self.k[0].device
        target, source = to_device(target_slots, device), to_device(source_slots, device)
        for tensor in (*self.k, *self.v):
            tensor[target] = tensor[source]


class SlotAllocator:
    """Hands out the lowest free slots of a pool of ``num_slots``, on the host; slot 0 is never among them."""

    def __init__(self, num_slots: int) -> None:
        self._list = FreeList("KV slots", num_slots)

    @property
    def available(self) -> int:
        """How many are free."""
        return self._list.available

    def alloc(self, count: int) -> Tensor:
        """int64 [count] on the host, ascending. Raises PoolExhausted naming asked and available, taking nothing
        then.
        """
        return torch.tensor(self._list.take(count), dtype=torch.int64, device=HOST)

    def free(self, slots: Tensor) -> None:
        """Give back int64 [n] of the host. Raises ValueError, freeing nothing, for a slot that is free or
        doesn't exist.
        """
        self._list.give_back([int(slot) for slot in slots.tolist()])


class ReqToTokenPool:
    """req_to_token int32 [max_requests, max_context]: the slot of each position of each request
    row.
    """

    def __init__(
        self, max_requests: int, max_context: int, device: torch.device | str = "cpu"
    ) -> None:
        shape = (max_requests, max_context)
        self.req_to_token = torch.zeros(shape, dtype=torch.int32, device=device)
        self._list = FreeList("request rows", max_requests)

    @property
    def available(self) -> int:
        """How many are free."""
        return self._list.available

    def alloc(self) -> int:
        """The lowest free request row (never 0). Raises PoolExhausted."""
        return self._list.take(1)[0]

    def free(self, request: int) -> None:
        """Give a row back and reset its slots to the padding slot. Raises ValueError on a double
        free.
        """
        self._list.give_back([request])
        self.req_to_token[request].zero_()
