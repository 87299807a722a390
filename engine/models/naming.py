"""The Hugging Face tensor names of a decoder's weights, each with the part of our fused weights
that holds it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.models.config import DecoderConfig
from engine.models.decoder import Decoder
from engine.models.layer import DecoderLayer

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def named_views(model: Decoder) -> dict[str, Tensor]:
    """Tensor name to a view into the model's weights; writing to a view writes the model, unless it
    is packed: then the matrices are copies.

    A tied head has no name of its own. With 2 query heads and 1 key/value head of width 4, rows 0 …
    7 of the fused matrix are q_proj, 8 … 11 k_proj and 12 … 15 v_proj.
    """
    views: dict[str, Tensor] = {EMBEDDING: model.embedding, FINAL_NORM: model.final_norm}
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, DecoderLayer), type(layer)
        own = _layer_views(layer, model.config)
        views.update({f"model.layers.{index}.{name}": view for name, view in own.items()})
    if not model.config.tie_word_embeddings:
        views[HEAD] = model.head.dense()
    return views


def _layer_views(layer: DecoderLayer, config: DecoderConfig) -> dict[str, Tensor]:
    gate, up = layer.gate_up.dense().chunk(2)
    views = {
        "input_layernorm.weight": layer.input_norm,
        "self_attn.o_proj.weight": layer.out.dense(),
        "post_attention_layernorm.weight": layer.mlp_norm,
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": layer.down.dense(),
    }
    views |= _split_heads(layer.qkv.dense(), config, "weight")
    if layer.qkv.bias is not None and layer.out.bias is not None:
        views |= _split_heads(layer.qkv.bias, config, "bias")
        views["self_attn.o_proj.bias"] = layer.out.bias
    if layer.q_norm is not None and layer.k_norm is not None:
        views["self_attn.q_norm.weight"] = layer.q_norm
        views["self_attn.k_norm.weight"] = layer.k_norm
    return views


def _split_heads(fused: Tensor, config: DecoderConfig, kind: str) -> dict[str, Tensor]:
    parts = torch.split(fused, [config.query_width, config.kv_width, config.kv_width])
    return {f"self_attn.{part}_proj.{kind}": view for part, view in zip("qkv", parts, strict=True)}
