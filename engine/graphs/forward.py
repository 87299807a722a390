"""A stack of decoder layers over flat rows, with few launches: what ``Decoder`` and ``DFlash`` compute, for a graph.

The weights are those of the models, not copies, but for a drafter's query and key-value matrices, which become one.
Covered: Llama, Qwen3 and DFlash layers. Not covered: packed CPU weights (they are unpacked once), gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.graphs.heads import linear_heads
from engine.graphs.linear import Norm, Unscaled, linear_add, linear_add_norm, linear_gated
from engine.graphs.rows import Heads, Memory, normed
from engine.models.decoder import Decoder
from engine.models.dflash import DFlash, DFlashLayer
from engine.models.kv_pool import KVPool
from engine.models.layer import DecoderLayer
from engine.models.linear import Projection

# attention(layer, q [rows, num_heads, head_dim], k and v [rows, num_kv_heads, head_dim]) -> like q; all are views.
Attention = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One layer; matrices are [out, in]."""

    input_norm: Tensor
    qkv: Tensor  # rows: queries, keys, values
    qkv_bias: Tensor | None
    q_norm: Tensor | None  # [1, head_dim]
    k_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor  # rows: gate, up
    down: Tensor


@dataclass(frozen=True, eq=False)
class Stack:
    """Layers and the norm behind them."""

    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    heads: Heads
    eps: float

    def run(
        self,
        hidden: Tensor,
        positions: Tensor,
        attention: Attention,
        memories: list[Memory] | None,
        keep: Collection[int] = (),
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Normed hidden states after the last layer, and the residual stream after the layers to ``keep``.

        ``hidden`` [rows, hidden_size]; ``positions`` int64 [rows], not checked; ``memories``: where each layer's keys
        and values are written, before its attention is called; None: nowhere.
        """
        kept: dict[int, Tensor] = {}
        norms = [Norm(layer.input_norm, self.eps) for layer in self.layers]
        rows: Tensor | Unscaled = normed(hidden, norms[0].gain, self.eps)
        for index, layer in enumerate(self.layers):
            fused = linear_heads(
                rows,
                layer.qkv,
                layer.qkv_bias,
                positions,
                self.heads,
                layer.q_norm,
                layer.k_norm,
                None if memories is None else memories[index],
            )
            attended = attention(index, *self._split(fused)).flatten(1)
            norm = Norm(layer.mlp_norm, self.eps)
            hidden, rows = linear_add_norm(attended, layer.out, layer.out_bias, hidden, norm)
            inner = linear_gated(rows, layer.gate_up)
            if index + 1 < len(norms):
                hidden, rows = linear_add_norm(inner, layer.down, None, hidden, norms[index + 1])
            else:
                hidden = linear_add(inner, layer.down, None, hidden)
            if index in keep:
                kept[index] = hidden
        return normed(hidden, self.final_norm, self.eps), kept

    def _split(self, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as views of fused rows."""
        heads = self.heads
        table = fused.view(len(fused), -1, heads.head_dim)
        ends = (heads.num_heads, heads.num_heads + heads.num_kv_heads)
        query, key, value = table.tensor_split(ends, dim=1)
        return query, key, value


def layer_memories(pool: KVPool, slots: Tensor) -> list[Memory]:
    """Where each layer of a target writes its rows; ``slots`` int64 [rows]."""
    return [Memory(k[None], v[None], slots) for k, v in zip(pool.k, pool.v, strict=True)]


def decoder_stack(model: Decoder) -> Stack:
    """The layers of a target."""
    layers = []
    for layer in model.layers:
        assert isinstance(layer, DecoderLayer)
        layers.append(_weights(layer, layer.qkv.dense(), layer.qkv.bias))
    return _stack(layers, model)


def drafter_stack(model: DFlash) -> Stack:
    """The layers of a drafter as its block rows run through them."""
    layers = []
    for index in range(model.config.num_layers):
        layer = model.layer(index)
        matrix = torch.cat((layer.q.dense(), layer.kv.dense()))
        layers.append(_weights(layer, matrix, _joined_bias(layer.q, layer.kv)))
    return _stack(layers, model)


def _weights(layer: DecoderLayer | DFlashLayer, qkv: Tensor, bias: Tensor | None) -> LayerWeights:
    return LayerWeights(
        layer.input_norm,
        qkv,
        bias,
        _as_row(layer.q_norm),
        _as_row(layer.k_norm),
        layer.out.dense(),
        layer.out.bias,
        layer.mlp_norm,
        layer.gate_up.dense(),
        layer.down.dense(),
    )


def _stack(layers: list[LayerWeights], model: Decoder | DFlash) -> Stack:
    config = model.config
    heads = Heads(
        config.num_heads, config.num_kv_heads, config.head_dim, model.rope, config.rms_norm_eps
    )
    return Stack(tuple(layers), model.final_norm, heads, config.rms_norm_eps)


def _as_row(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight[None]


def _joined_bias(left: Projection, right: Projection) -> Tensor | None:
    if left.bias is None or right.bias is None:
        return None
    return torch.cat((left.bias, right.bias))
