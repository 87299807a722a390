"""DFlashDrafter: DFlash behind the engine's drafter interface, a context cache a request and one forward a batch.

Covered: requests of different lengths, eager, any device. Not covered: CUDA graphs, sharing of prefixes, forgetting
context outside a sliding window.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.drafters.base import Drafter
from engine.models.decoder import Decoder
from engine.models.device import HOST, to_device
from engine.models.dflash import DFlash, layer_visibility

FIRST_ROWS = 256  # capacity of a new cache


class ContextCache:
    """Keys and values of one request's committed tokens; per layer [num_kv_heads, capacity, head_dim].

    Block rows are written behind them for the time of a draft and never counted.
    """

    def __init__(self, model: DFlash) -> None:
        config = model.config
        self.length = 0  # committed tokens
        self._shape = (config.num_layers, config.num_kv_heads, 0, config.head_dim)
        self._keys = torch.empty(self._shape, dtype=model.dtype, device=model.device)
        self._values = torch.empty_like(self._keys)

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows behind the committed ones."""
        need, have = self.length + rows, self._keys.shape[2]
        if need <= have:
            return
        extra = max(need, 2 * have, FIRST_ROWS) - have
        layers, heads, _, head_dim = self._shape
        room = self._keys.new_empty((layers, heads, extra, head_dim))
        self._keys = torch.cat((self._keys, room), dim=2)
        self._values = torch.cat((self._values, room), dim=2)

    def append(self, keys_values: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Commit tokens: keys and values [rows, num_kv_heads, head_dim] of every layer."""
        rows = keys_values[0][0].shape[0]
        self.reserve(rows)
        for layer, (keys, values) in enumerate(keys_values):
            self.with_block(layer, keys, values)
        self.length += rows

    def with_block(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Context and these rows [rows, num_kv_heads, head_dim]: views [num_kv_heads, length + rows, head_dim].

        The rows must have been reserved; the next call overwrites them.
        """
        end = self.length + keys.shape[0]
        self._keys[layer, :, self.length : end] = keys.transpose(0, 1)
        self._values[layer, :, self.length : end] = values.transpose(0, 1)
        return self._keys[layer, :, :end], self._values[layer, :, :end]


class _Request:
    """What is known of one request: its cache, and features that are not in it yet."""

    def __init__(self, model: DFlash) -> None:
        self.cache = ContextCache(model)
        self.pending: list[Tensor] = []  # [rows, feature_width] each

    @property
    def committed(self) -> int:
        """Committed tokens, the root's position."""
        return self.cache.length + sum(map(len, self.pending))


class DFlashDrafter(Drafter):
    """Marginals of ``model``, whose embedding and head are ``target``'s.

    ``block_size`` may be smaller than the trained one; a larger one raises ValueError.
    """

    def __init__(self, model: DFlash, target: Decoder, *, block_size: int | None = None) -> None:
        trained = model.config.block_size
        super().__init__(trained if block_size is None else block_size)
        if self.block_size > trained:
            raise ValueError(
                f"block_size: expected at most {trained}, which the drafter was trained with, "
                f"found {self.block_size}"
            )
        self.model, self.target = model, target
        self.target_layer_ids = model.config.target_layer_ids
        self._requests: dict[str, _Request] = {}

    def start(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        """See :class:`Drafter`. Raises ValueError for features of another shape."""
        self._requests[rid] = _Request(self.model)
        self.commit(rid, tokens, features)

    def commit(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        """See :class:`Drafter`. Raises ValueError for features of another shape."""
        expected = [len(tokens), self.model.config.feature_width]
        if list(features.shape) != expected:
            raise ValueError(
                f"features of {rid}: expected {expected} (tokens, target layers * hidden_size), "
                f"found {list(features.shape)}"
            )
        self._requests[rid].pending.append(features.to(self.model.device, self.model.dtype))

    def finish(self, rid: str) -> None:
        """See :class:`Drafter`."""
        del self._requests[rid]

    def context_length(self, rid: str) -> int:
        """Committed tokens of a request, which its next draft will see."""
        return self._requests[rid].committed

    @torch.inference_mode()
    def draft(self, rids: Sequence[str], roots: Sequence[int]) -> Tensor:
        """One forward over all blocks; float32 [bs, L, vocab_size] on the target's device, see :class:`Drafter`.

        Raises ValueError for a block beyond the drafter's positions.
        """
        requests = [self._requests[rid] for rid in rids]
        self._check_room(rids, requests)
        self._materialise(requests)
        device = self.model.device
        lengths = torch.tensor([request.cache.length for request in requests], device=HOST)
        places = lengths[:, None] + torch.arange(self.block_size, device=HOST)
        positions = to_device(places, device)
        ids = self.model.block_ids(torch.tensor(roots, device=HOST), self.block_size)
        ids = to_device(ids, self.target.device)
        embeddings = self.target.embed(ids).to(device, self.model.dtype)
        attention = _CachedAttention(self.model, [request.cache for request in requests], positions)
        hidden = self.model(embeddings, positions, attention)[:, 1:]
        wide = hidden.to(self.target.device, self.target.dtype)
        return self.model.logits(wide, self.target.lm_head)

    def _check_room(self, rids: Sequence[str], requests: Sequence[_Request]) -> None:
        limit = self.model.rope.shape[0]
        for rid, request in zip(rids, requests, strict=True):
            if request.committed + self.block_size > limit:
                raise ValueError(
                    f"draft of {rid}: expected positions 0 … {limit - 1}, found a block of "
                    f"{self.block_size} from {request.committed}"
                )

    def _materialise(self, requests: Sequence[_Request]) -> None:
        """Turn all pending features into context keys and values at once."""
        waiting = [request for request in requests if request.pending]
        if waiting:
            rows = [torch.cat(request.pending) for request in waiting]
            lengths = [len(part) for part in rows]
            places = [
                torch.arange(request.cache.length, request.committed, device=self.model.device)
                for request in waiting
            ]
            made = self.model.context_keys_values(torch.cat(rows), torch.cat(places))
            split = [[torch.split(part, lengths) for part in layer] for layer in made]
            for i, request in enumerate(waiting):
                request.cache.append([(keys[i], values[i]) for keys, values in split])
                request.pending.clear()


class _CachedAttention:
    """``attention(layer, q, k, v)`` of one draft: each request's block over its own context and itself."""

    def __init__(self, model: DFlash, caches: Sequence[ContextCache], positions: Tensor) -> None:
        self.config, self.caches, self.positions = model.config, caches, positions
        for cache in caches:
            cache.reserve(positions.shape[1])

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [bs, rows, heads, head_dim], k and v [bs, rows, kv_heads, head_dim] -> like q."""
        return torch.stack(
            [
                self._attend(layer, i, q[i], *cache.with_block(layer, k[i], v[i]))
                for i, cache in enumerate(self.caches)
            ]
        )

    def _attend(self, layer: int, i: int, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The heads of a group stand as rows of one head: a plain product without repeated keys."""
        rows, head_dim = q.shape[0], q.shape[-1]
        group, kv_heads = self.config.group_size, self.config.num_kv_heads
        grouped = q.view(rows, kv_heads, group, head_dim).permute(1, 2, 0, 3)
        places = torch.arange(keys.shape[1], device=q.device)
        seen = layer_visibility(self.config, layer, self.positions[i], places)
        out = F.scaled_dot_product_attention(
            grouped.reshape(1, kv_heads, group * rows, head_dim),
            keys[None],
            values[None],
            attn_mask=None if seen is None else seen.repeat(group, 1),
        )
        return out.view(kv_heads, group, rows, head_dim).permute(2, 0, 1, 3).reshape(q.shape)
