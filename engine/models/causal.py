"""Contiguous one-request KV cache and plain decoding: the baseline that every tree method is
compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.config import DecoderConfig
from engine.models.decoder import AttentionFn, Decoder
from engine.models.device import HOST, to_device


class CausalCache:
    """Keys and values of one request, [layers, num_kv_heads, capacity, head_dim], rows appended in
    order.
    """

    def __init__(
        self,
        config: DecoderConfig,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (config.num_layers, config.num_kv_heads, capacity, config.head_dim)
        self.capacity = capacity
        self.length = 0  # rows valid in every layer
        self._group = config.group_size
        self._keys = list(torch.zeros(shape, dtype=dtype, device=device))
        self._values = list(torch.zeros(shape, dtype=dtype, device=device))
        self._last_layer = config.num_layers - 1

    def truncate(self, length: int) -> None:
        """Forget the rows from ``length`` on. Raises ValueError for more rows than there are."""
        if not 0 <= length <= self.length:
            raise ValueError(f"truncate: expected 0 … {self.length} rows, found {length}")
        self.length = length

    def attention(self, prefix_len: int) -> AttentionFn:
        """Attention for one forward pass whose rows stand at prefix_len, prefix_len + 1, …

        Each layer appends its rows; a row sees the prefix, the earlier rows and itself. Rows that
        the cache held from prefix_len on are forgotten. Raises ValueError if the prefix isn't in
        the cache or rows don't fit.
        """
        if not 0 <= prefix_len <= self.length:
            raise ValueError(
                f"attention: expected a prefix of 0 … {self.length}, found {prefix_len}"
            )
        self.length = prefix_len  # a pass that fails half-way must not leave mixed rows valid
        mask: Tensor | None = None

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            nonlocal mask
            rows, end = query.shape[0], prefix_len + query.shape[0]
            keys, values = self._append(layer, prefix_len, end, key, value)
            if layer == self._last_layer:
                self.length = end
            if rows == 1:
                return self._attend_one(query, keys, values)
            if mask is None and prefix_len:
                mask = torch.ones(rows, end, dtype=torch.bool, device=query.device).tril(prefix_len)
            return _attend_many(query, keys, values, mask)

        return attend

    def _append(
        self, layer: int, start: int, end: int, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        if end > self.capacity:
            raise ValueError(f"cache: expected at most {self.capacity} rows, found {end}")
        keys, values = self._keys[layer], self._values[layer]
        keys[:, start:end] = key.transpose(0, 1)
        values[:, start:end] = value.transpose(0, 1)
        return keys[:, :end], values[:, :end]

    def _attend_one(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """A row sees every key, so the heads of a group can stand as rows of one head: no mask."""
        grouped = query.reshape(1, -1, self._group, query.shape[-1])
        out = F.scaled_dot_product_attention(grouped, keys.unsqueeze(0), values.unsqueeze(0))
        return out.reshape(query.shape)


def _attend_many(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """query [rows, heads, head_dim], keys and values [kv_heads, end, head_dim], mask bool [rows,
    end].
    """
    out = F.scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        keys.unsqueeze(0),
        values.unsqueeze(0),
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)


def generate_plain(
    model: Decoder,
    tokens: Sequence[int],
    max_new_tokens: int,
    *,
    stop: Collection[int] = (),
    sample: Callable[[Tensor], int] | None = None,
) -> Iterator[int]:
    """Yield up to max_new_tokens ids that follow ``tokens``, one forward pass each; a stop id is
    the last.

    Greedy unless ``sample`` chooses an id from logits float32 [vocab_size]. Raises ValueError for
    empty tokens.
    """
    if not tokens:
        raise ValueError("generate_plain: expected at least one token, found none")
    cache = CausalCache(
        model.config, len(tokens) + max_new_tokens, dtype=model.dtype, device=model.device
    )
    rows = list(tokens)
    for _ in range(max_new_tokens):
        logits = _next_logits(model, cache, rows)
        chosen = int(logits.argmax()) if sample is None else sample(logits)
        yield chosen
        if chosen in stop:
            return
        rows = [chosen]


@torch.inference_mode()
def _next_logits(model: Decoder, cache: CausalCache, rows: Sequence[int]) -> Tensor:
    """Append rows to the cache; logits [vocab_size] of the last of them."""
    start = cache.length
    positions = torch.arange(start, start + len(rows), device=model.device)
    ids = to_device(torch.tensor(rows, dtype=torch.int64, device=HOST), model.device)
    last = positions[-1:] - start
    return model(ids, positions, cache.attention(start), logits_rows=last).logits[0]  # type: ignore[no-any-return]
