"""Small DFlash checkpoints made and written by the tests themselves, in each layout that drafters are found in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.models.decoder import Decoder
from engine.models.tiny import random_decoder

VOCAB, HIDDEN, TARGET_LAYERS = 50, 32, 4


def target(family: str = "llama", **changes: Any) -> Decoder:
    shape = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "num_layers": TARGET_LAYERS}
    return random_decoder(family, seed=3, logit_scale=1.0, **(shape | changes))  # type: ignore[arg-type]


def raw_config(**changes: Any) -> dict[str, Any]:
    """A config.json's object. Keys of dflash_config are given as ``own={...}``."""
    own = {"mask_token_id": 7, "target_layer_ids": [2, 0]} | changes.pop("own", {})
    raw = {
        "model_type": "qwen3",
        "block_size": 6,
        "num_target_layers": TARGET_LAYERS,
        "num_hidden_layers": 2,
        "hidden_size": HIDDEN,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCAB,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "dflash_config": own,
    } | changes
    raw.setdefault("layer_types", ["full_attention"] * raw["num_hidden_layers"])
    return raw


def random_tensors(
    raw: dict[str, Any], seed: int = 0, *, qk_norm: bool = True, bias: bool = False
) -> dict[str, Tensor]:
    """Checkpoint names without prefix to float32 weights."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(out: int, width: int, gain: float = 1.5) -> Tensor:
        return gain / math.sqrt(width) * torch.randn(out, width, generator=generator)

    def gains(size: int, mean: float = 1.0) -> Tensor:
        return mean + 0.2 * torch.randn(size, generator=generator)

    hidden, inner, dim = raw["hidden_size"], raw["intermediate_size"], raw["head_dim"]
    sizes = {"q": raw["num_attention_heads"] * dim}
    sizes["k"] = sizes["v"] = raw["num_key_value_heads"] * dim
    features = len(raw["dflash_config"]["target_layer_ids"])
    tensors = {"fc.weight": matrix(hidden, features * hidden)}
    tensors["hidden_norm.weight"], tensors["norm.weight"] = gains(hidden), gains(hidden)
    for layer in range(raw["num_hidden_layers"]):
        own = {
            "input_layernorm.weight": gains(hidden),
            "post_attention_layernorm.weight": gains(hidden),
            "self_attn.o_proj.weight": matrix(hidden, sizes["q"]),
            "mlp.gate_proj.weight": matrix(inner, hidden),
            "mlp.up_proj.weight": matrix(inner, hidden),
            "mlp.down_proj.weight": matrix(hidden, inner),
        }
        for part, size in sizes.items():
            own[f"self_attn.{part}_proj.weight"] = matrix(size, hidden)
            if bias:
                own[f"self_attn.{part}_proj.bias"] = gains(size, 0.0)
        if bias:
            own["self_attn.o_proj.bias"] = gains(hidden, 0.0)
        if qk_norm:
            own["self_attn.q_norm.weight"] = gains(dim, 1.5)
            own["self_attn.k_norm.weight"] = gains(dim, 1.5)
        tensors |= {f"layers.{layer}.{name}": tensor for name, tensor in own.items()}
    return tensors


def fused(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with qkv_proj and gate_up_proj."""
    made = {}
    for name, tensor in tensors.items():
        if "q_proj" in name:
            parts = [tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            made[name.replace("q_proj", "qkv_proj")] = torch.cat(parts)
        elif "gate_proj" in name:
            up = tensors[name.replace("gate_proj", "up_proj")]
            made[name.replace("gate_proj", "gate_up_proj")] = torch.cat([tensor, up])
        elif not any(part in name for part in ("k_proj", "v_proj", "up_proj")):
            made[name] = tensor
    return made


def write_checkpoint(
    folder: Path, raw: dict[str, Any], tensors: dict[str, Tensor], *, shards: int = 1
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    weight_map = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[i::shards]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def random_features(rows: int, raw: dict[str, Any], seed: int = 1) -> Tensor:
    width = len(raw["dflash_config"]["target_layer_ids"]) * raw["hidden_size"]
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
