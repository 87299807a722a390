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
from engine.models.device import HOST, to_device
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
        mask = torch.ones(length, length, dtype=torch.bool, device=HOST).tril()
        ids, positions = torch.tensor(tokens, device=HOST), torch.arange(length, device=HOST)
        logits = self._forward(cache, ids, positions, mask)
        self.commit(rid, range(length))
        return logits[-1]

    def verify(self, rid: str, tree: DraftTree, prefix_len: int) -> Tensor:
        """Logits [num_nodes, V] of every node given its root path."""
        block = torch.zeros(tree.num_nodes, tree.num_nodes, dtype=torch.bool, device=HOST)
        for node, path in enumerate(tree.paths):
            for ancestor in path:
                block[node, ancestor] = True
        mask = torch.cat([block.new_ones(tree.num_nodes, prefix_len), block], dim=1)
        positions = prefix_len + torch.from_numpy(tree.depths)
        return self._forward(self._caches[rid], torch.from_numpy(tree.tokens), positions, mask)

    def commit(self, rid: str, nodes: Sequence[int]) -> None:
        """Keep the rows of the accepted nodes of the last forward."""
        cache = self._caches[rid]
        rows = to_device(torch.tensor(list(nodes), device=HOST), self.model.device)
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
        """One forward over rows that were laid out on the host."""
        ids, positions, mask = (to_device(t, self.model.device) for t in (ids, positions, mask))

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.new_keys[layer], cache.new_values[layer] = k.clone(), v.clone()
            keys = torch.cat([*cache.keys[layer : layer + 1], k])
            values = torch.cat([*cache.values[layer : layer + 1], v])
            return dense_attend(q, keys, values, mask, self.dtype)

        logits: Tensor = self.model(ids, positions, attention).logits
        return logits
