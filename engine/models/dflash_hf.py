"""A drafter's config.json, read to a DFlashConfig and written from one.

Keys of the drafter's own are taken from the top level or from ``dflash_config``. Refused with the reason: the
convolutions and selectors of DFlash2, drafting from slot 0, other activations than SiLU, rotary scalings that
:mod:`engine.models.rope` doesn't compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.config import DEFAULT_ROPE_THETA, FAMILIES
from engine.models.dflash_config import DFlashConfig
from engine.models.rope import RopeScaling

NESTED = "dflash_config"
REFUSED = (
    "conv_kernel_size",
    "conv_group_size",
    "selector_rank",
    "selector_top_k",
    "sample_from_anchor",
)


def config_from_hf(
    config: Mapping[str, Any],
    *,
    num_target_layers: int | None = None,
    qk_norm: bool | None = None,
) -> DFlashConfig:
    """Read a parsed config.json. Raises ValueError naming key, expected and found.

    ``num_target_layers`` stands in where the configuration has none. ``qk_norm``, whether the weights hold head norms,
    goes before what the model type says.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"model_type: expected {' or '.join(FAMILIES)}, found {family!r}")
    _refuse(config)
    rope = _rope_settings(config)
    depth = _integer(config, "num_hidden_layers")
    heads, hidden = _integer(config, "num_attention_heads"), _integer(config, "hidden_size")
    target_depth = _integer(config, "num_target_layers", num_target_layers)
    return DFlashConfig(
        hidden_size=hidden,
        intermediate_size=_integer(config, "intermediate_size"),
        num_layers=depth,
        num_heads=heads,
        num_kv_heads=_integer(config, "num_key_value_heads", heads),
        head_dim=_integer(config, "head_dim", hidden // heads),
        vocab_size=_integer(config, "vocab_size"),
        max_position=_integer(config, "max_position_embeddings"),
        block_size=_integer(config, "block_size"),
        mask_token_id=_integer(config, "mask_token_id", least=0),
        target_layer_ids=_layer_ids(config, target_depth, depth),
        num_target_layers=target_depth,
        layer_types=_layer_types(config, depth),
        sliding_window=_optional(config, "sliding_window"),
        is_causal=_causality(config),
        rope_theta=float(rope.get("rope_theta") or DEFAULT_ROPE_THETA),
        rope_scaling=RopeScaling.from_hf(rope),
        rms_norm_eps=_number(config, "rms_norm_eps", 1e-6),
        qk_norm=family == "qwen3" if qk_norm is None else qk_norm,
        attention_bias=bool(config.get("attention_bias")),
        draft_vocab_size=_optional(config, "draft_vocab_size"),
        input_embedding_scale=_number(config, "input_embedding_scale", 1.0),
        output_multiplier=_number(config, "output_multiplier", 1.0),
        final_logit_softcapping=_softcap(config),
    )


def config_to_hf(config: DFlashConfig) -> dict[str, Any]:
    """The object of a config.json that :func:`config_from_hf` reads back to an equal configuration."""
    own = {
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.target_layer_ids),
    }
    for key, neutral in (
        ("is_causal", None),
        ("draft_vocab_size", None),
        ("final_logit_softcapping", None),
        ("input_embedding_scale", 1.0),
        ("output_multiplier", 1.0),
    ):
        if getattr(config, key) != neutral:
            own[key] = getattr(config, key)
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3" if config.qk_norm else "llama",
        "block_size": config.block_size,
        NESTED: own,
        "num_target_layers": config.num_target_layers,
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _scaling_to_hf(config.rope_scaling),
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position,
        "attention_bias": config.attention_bias,
        "tie_word_embeddings": False,
        "layer_types": list(config.layer_types),
        "sliding_window": config.sliding_window,
        "use_sliding_window": "sliding_attention" in config.layer_types,
    }


def default_layer_ids(num_target_layers: int, count: int) -> tuple[int, ...]:
    """DFlash's choice of ``count`` target layers, evenly from the second to the third last."""
    if count == 1:
        return (num_target_layers // 2,)
    step = (num_target_layers - 4) / (count - 1)
    return tuple(round(1 + i * step) for i in range(count))


def _either(config: Mapping[str, Any], key: str) -> Any:
    """The value at the top or in dflash_config, None if at neither; two that differ are an error."""
    nested = config.get(NESTED) or {}
    if not isinstance(nested, Mapping):
        raise ValueError(f"{NESTED}: expected an object, found {nested!r}")
    outer, inner = config.get(key), nested.get(key)
    if outer is not None and inner is not None and outer != inner:
        raise ValueError(f"{key}: found {outer!r} at the top level and {inner!r} in {NESTED}")
    return inner if outer is None else outer


def _integer(
    config: Mapping[str, Any], key: str, default: int | None = None, least: int = 1
) -> int:
    found = _either(config, key)
    if found is None:
        found = default
    if not isinstance(found, int) or isinstance(found, bool) or found < least:
        raise ValueError(f"{key}: expected an integer of at least {least}, found {found!r}")
    return found


def _optional(config: Mapping[str, Any], key: str) -> int | None:
    return None if _either(config, key) is None else _integer(config, key)


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    found = _either(config, key)
    if found is None:
        return default
    if not isinstance(found, int | float) or isinstance(found, bool) or found <= 0:
        raise ValueError(f"{key}: expected a positive number, found {found!r}")
    return float(found)


def _softcap(config: Mapping[str, Any]) -> float | None:
    key = "final_logit_softcapping"
    return None if _either(config, key) is None else _number(config, key, 0.0)


def _refuse(config: Mapping[str, Any]) -> None:
    for key in REFUSED:
        if _either(config, key):
            raise ValueError(
                f"{key}: expected none, it isn't computed, found {_either(config, key)!r}"
            )
    for key, expected in {"hidden_act": "silu", "partial_rotary_factor": 1.0}.items():
        if config.get(key, expected) != expected:
            raise ValueError(f"{key}: expected {expected!r}, found {config[key]!r}")


def _rope_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """One flat mapping from either layout of the rotary settings."""
    settings: dict[str, Any] = {"rope_theta": config.get("rope_theta")}
    return settings | (config.get("rope_scaling") or {}) | (config.get("rope_parameters") or {})


def _scaling_to_hf(scaling: RopeScaling) -> dict[str, Any] | None:
    if scaling.kind == "none":
        return None
    slowed = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "linear":
        return slowed
    return slowed | {
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_position,
    }


def _layer_ids(config: Mapping[str, Any], target_depth: int, depth: int) -> tuple[int, ...]:
    found = _either(config, "target_layer_ids")
    if found is None:
        found = _either(config, "layer_ids")
    if found is None:
        return default_layer_ids(target_depth, depth)
    if not isinstance(found, list) or not all(type(layer) is int for layer in found):
        raise ValueError(f"target_layer_ids: expected a list of integers, found {found!r}")
    return tuple(found)


def _layer_types(config: Mapping[str, Any], depth: int) -> tuple[str, ...]:
    found = _either(config, "layer_types")
    if found is not None:
        if not isinstance(found, list):
            raise ValueError(f"layer_types: expected a list, found {found!r}")
        return tuple(found)
    if not config.get("use_sliding_window"):
        return ("full_attention",) * depth
    first = _integer(config, "max_window_layers", least=0)
    return tuple("sliding_attention" if i >= first else "full_attention" for i in range(depth))


def _causality(config: Mapping[str, Any]) -> bool | None:
    """Whether the block is causal in all layers or in none; None where the layer type decides."""
    if _either(config, "sliding_window_non_causal"):
        return False
    found = _either(config, "is_causal")
    if found is not None and not isinstance(found, bool):
        raise ValueError(f"is_causal: expected true or false, found {found!r}")
    return found
