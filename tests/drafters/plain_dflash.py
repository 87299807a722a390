"""A second DFlash, written from the formulas: one request, no cache, no batch, no fused matrix, float64, loops.

It reads a config.json's object and tensors by their checkpoint names and shares no code with the engine.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def plain_draft(
    raw: dict[str, Any],
    weights: dict[str, Tensor],
    embedding: Tensor,
    head: Tensor,
    features: Tensor,
    root: int,
    block_size: int,
) -> Tensor:
    """Logits [block_size - 1, V] of the places after ``root``, which follows ``features`` [S, F * H]."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    own, eps = raw["dflash_config"], raw["rms_norm_eps"]
    start = len(features)
    context = [rms(w["fc.weight"] @ row, w["hidden_norm.weight"], eps) for row in features.double()]
    ids = [root] + [own["mask_token_id"]] * (block_size - 1)
    hidden = [own.get("input_embedding_scale", 1.0) * embedding[token].double() for token in ids]
    for layer in range(raw["num_hidden_layers"]):
        part = {
            name.removeprefix(f"layers.{layer}."): tensor
            for name, tensor in w.items()
            if name.startswith(f"layers.{layer}.")
        }
        hidden = plain_layer(raw, layer, part, context, hidden, start)
    rows = [head.double() @ rms(row, w["norm.weight"], eps) for row in hidden[1:]]
    logits = own.get("output_multiplier", 1.0) * torch.stack(rows)
    cap = own.get("final_logit_softcapping")
    return logits if cap is None else cap * (logits / cap).tanh()


def plain_layer(
    raw: dict[str, Any],
    layer: int,
    w: dict[str, Tensor],
    context: list[Tensor],
    hidden: list[Tensor],
    start: int,
) -> list[Tensor]:
    eps, theta = raw["rms_norm_eps"], raw["rope_theta"]
    heads, kv_heads, dim = raw["num_attention_heads"], raw["num_key_value_heads"], raw["head_dim"]

    def project(which: str, row: Tensor, position: int | None) -> list[Tensor]:
        """Heads of one row, normed and turned where that is due."""
        flat = w[f"self_attn.{which}_proj.weight"] @ row
        flat = flat + w.get(f"self_attn.{which}_proj.bias", torch.zeros(()))
        parts = [flat[i : i + dim] for i in range(0, len(flat), dim)]
        if f"self_attn.{which}_norm.weight" in w:
            parts = [rms(part, w[f"self_attn.{which}_norm.weight"], eps) for part in parts]
        return parts if position is None else [turned(part, position, theta) for part in parts]

    normed = [rms(row, w["input_layernorm.weight"], eps) for row in hidden]
    sources = [*context, *normed]
    keys = [project("k", row, position) for position, row in enumerate(sources)]
    values = [project("v", row, None) for row in sources]
    after = []
    for j, row in enumerate(hidden):
        queries = project("q", normed[j], start + j)
        seen = [p for p in range(len(sources)) if visible(raw, layer, start + j, p)]
        out = []
        for h in range(heads):
            kv = h // (heads // kv_heads)
            scores = [float(queries[h] @ keys[p][kv]) / math.sqrt(dim) for p in seen]
            exps = [math.exp(score - max(scores)) for score in scores]
            out.append(sum(e / sum(exps) * values[p][kv] for e, p in zip(exps, seen, strict=True)))
        attended = w["self_attn.o_proj.weight"] @ torch.cat(out)
        row = row + attended + w.get("self_attn.o_proj.bias", torch.zeros(()))
        inner = rms(row, w["post_attention_layernorm.weight"], eps)
        gate, up = w["mlp.gate_proj.weight"] @ inner, w["mlp.up_proj.weight"] @ inner
        after.append(row + w["mlp.down_proj.weight"] @ (gate / (1 + (-gate).exp()) * up))
    return after


def visible(raw: dict[str, Any], layer: int, query: int, key: int) -> bool:
    sliding = raw["layer_types"][layer] == "sliding_attention"
    causal = raw.get("is_causal", sliding)
    if causal and key > query:
        return False
    return not sliding or query - key < raw["sliding_window"]


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / math.sqrt(float((x * x).mean()) + eps) * weight


def turned(x: Tensor, position: int, theta: float) -> Tensor:
    """Element i and element i + half turn by position / theta^(i / half)."""
    half, out = len(x) // 2, x.clone()
    for i in range(half):
        angle = position / theta ** (i / half)
        a, b = float(x[i]), float(x[i + half])
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = a * math.sin(angle) + b * math.cos(angle)
    return out
