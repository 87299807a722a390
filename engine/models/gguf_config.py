"""The config.json that the metadata of a GGUF file amounts to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.models.config import FAMILIES
from engine.models.rope import RopeScaling, inverse_frequencies

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
# A file with Llama 3 scaling stores one divisor a frequency instead of the parameters; these are
# the released ones.
LLAMA3_SCALINGS = tuple(RopeScaling("llama3", factor, 1.0, 4.0, 8192) for factor in (8.0, 32.0))


def hf_config(
    fields: Mapping[str, Any], tensors: Collection[str], rope_factors: NDArray[np.float32] | None
) -> dict[str, Any]:
    """Build a config.json from metadata ``fields``, the tensor names and the rope_freqs tensor if
    there is one.

    Raises ValueError naming the key for another architecture, experts, a sliding window or unknown
    scaling.
    """
    arch = fields.get("general.architecture")
    if arch not in FAMILIES:
        raise ValueError(f"general.architecture: expected {' or '.join(FAMILIES)}, found {arch!r}")
    _refuse(fields, f"{arch}.expert_count", f"{arch}.attention.sliding_window")
    heads, width = (
        _need(fields, f"{arch}.attention.head_count"),
        _need(fields, f"{arch}.embedding_length"),
    )
    config = {
        "architectures": [ARCHITECTURES[arch]],
        "model_type": arch,
        "hidden_size": width,
        "intermediate_size": _need(fields, f"{arch}.feed_forward_length"),
        "num_hidden_layers": _need(fields, f"{arch}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get(f"{arch}.attention.head_count_kv", heads),
        "head_dim": fields.get(f"{arch}.attention.key_length", width // heads),
        "vocab_size": _vocab_size(fields, arch),
        "max_position_embeddings": _need(fields, f"{arch}.context_length"),
        "rms_norm_eps": _plain(_need(fields, f"{arch}.attention.layer_norm_rms_epsilon")),
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "tie_word_embeddings": "output.weight" not in tensors,
        "dtype": "bfloat16",
    }
    config |= _rope(fields, arch, config["head_dim"], rope_factors) | _special_tokens(fields)
    return config


def _need(fields: Mapping[str, Any], key: str) -> Any:
    if key not in fields:
        raise ValueError(f"metadata: expected the key {key}, found none")
    return fields[key]


def _refuse(fields: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if fields.get(key):
            raise ValueError(f"{key}: expected none, found {fields[key]}; it isn't computed")


def _vocab_size(fields: Mapping[str, Any], arch: str) -> int:
    size = fields.get(f"{arch}.vocab_size")
    return int(size) if size else len(_need(fields, "tokenizer.ggml.tokens"))


def _plain(value: float) -> float:
    """The short decimal that a stored float32 stands for: 9.99999974e-06 to 1e-05."""
    return float(str(np.float32(value)))


def _rope(
    fields: Mapping[str, Any], arch: str, head_dim: int, factors: NDArray[np.float32] | None
) -> dict[str, Any]:
    theta = _plain(fields.get(f"{arch}.rope.freq_base", 10000.0))
    kind = fields.get(f"{arch}.rope.scaling.type", "none")
    settings: dict[str, Any] | None = None
    if factors is not None:
        settings = _llama3(theta, head_dim, factors)
    elif kind == "linear":
        settings = {"rope_type": "linear", "factor": _need(fields, f"{arch}.rope.scaling.factor")}
    elif kind != "none":
        raise ValueError(f"{arch}.rope.scaling.type: expected none or linear, found {kind!r}")
    return {"rope_theta": theta, "rope_scaling": settings}


def _llama3(theta: float, head_dim: int, factors: NDArray[np.float32]) -> dict[str, Any]:
    """Find the parameters whose divisors the file stores."""
    plain = inverse_frequencies(theta, head_dim, RopeScaling())
    for scaling in LLAMA3_SCALINGS:
        divisors = (plain / inverse_frequencies(theta, head_dim, scaling)).numpy()
        if divisors.shape == factors.shape and np.allclose(divisors, factors, rtol=1e-4):
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_max_position,
            }
    raise ValueError(
        f"rope_freqs.weight: expected the divisors of Llama 3 scaling by 8 or 32, found {factors}"
    )


def _special_tokens(fields: Mapping[str, Any]) -> dict[str, Any]:
    ends = [fields.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot")]
    known = list(dict.fromkeys(int(end) for end in ends if end is not None))
    bos = fields.get("tokenizer.ggml.bos_token_id")
    return {
        "bos_token_id": None if bos is None else int(bos),
        "eos_token_id": known[0] if len(known) == 1 else known or None,
    }
