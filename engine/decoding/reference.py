"""The reference beside the engine: the same target, dense attention, a cache of its own, masks from root paths.

It never sees the engine's slots, buffers or metadata: it is told trees and accepted paths, and computes every node's
logits as plain decoding would. Slow on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.attention.dense import dense_attend
from engine.models.decoder import Decoder
from engine.tree import DraftTree


@dataclass
class _Cache:
    """Keys and values of one request, one tensor [length, kv_heads, dim] a layer, and the rows of the last forward."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    new_keys: dict[int, Tensor] = field(default_factory=dict)
    new_values: dict[int, Tensor] = field(default_factory=dict)


class ReferenceModel:
    """Dense logits of every node, request by request."""

    def __init__(self, model: Decoder, dtype: torch.dtype = torch.float32) -> None:
        self.model, self.dtype = model, dtype
        self._caches: dict[str, _Cache] = {}

    def start(self, rid: str, tokens: Sequence[int]) -> Tensor:
        """Take in a prompt; logits [V] of the token after it."""
        cache = self._caches[rid] = _Cache()
        length = len(tokens)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        logits = self._forward(cache, torch.tensor(tokens), torch.arange(length), mask)
        self.commit(rid, range(length))
        return logits[-1]

    def verify(self, rid: str, tree: DraftTree, prefix_len: int) -> Tensor:
        """Logits [num_nodes, V] of every node given its root path."""
        block = torch.zeros(tree.num_nodes, tree.num_nodes, dtype=torch.bool)
        for node, path in enumerate(tree.paths):
            for ancestor in path:
                block[node, ancestor] = True
        mask = torch.cat([torch.ones(tree.num_nodes, prefix_len, dtype=torch.bool), block], dim=1)
        positions = prefix_len + torch.from_numpy(tree.depths)
        return self._forward(self._caches[rid], torch.from_numpy(tree.tokens), positions, mask)

    def commit(self, rid: str, nodes: Sequence[int]) -> None:
        """Keep the rows of the accepted nodes of the last forward."""
        cache, rows = self._caches[rid], torch.tensor(list(nodes))
        for layer, new_keys in cache.new_keys.items():
            keys, values = new_keys[rows], cache.new_values[layer][rows]
            if layer == len(cache.keys):
                cache.keys.append(keys)
                cache.values.append(values)
            else:
                cache.keys[layer] = torch.cat([cache.keys[layer], keys])
                cache.values[layer] = torch.cat([cache.values[layer], values])

    def finish(self, rid: str) -> None:
        """Forget a request."""
        del self._caches[rid]

    @torch.inference_mode()
    def _forward(self, cache: _Cache, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.new_keys[layer], cache.new_values[layer] = k.clone(), v.clone()
            keys = torch.cat([*cache.keys[layer : layer + 1], k])
            values = torch.cat([*cache.values[layer : layer + 1], v])
            return dense_attend(q, keys, values, mask.to(q.device), self.dtype)

        device = self.model.device
        logits: Tensor = self.model(ids.to(device), positions.to(device), attention).logits
        return logits
