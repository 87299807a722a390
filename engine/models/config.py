"""DecoderConfig: the facts of a decoder-only model that its mathematics depends on, read from a
config.json.

Covers the Llama and Qwen3 architectures with plain, linear or Llama 3 rotary scaling. Everything
else (other architectures, sliding windows, mixtures of experts, biased MLPs) is refused with the
place and the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.models.rope import RopeScaling

Family = Literal["llama", "qwen3"]
FAMILIES: tuple[Family, ...] = ("llama", "qwen3")
DEFAULT_ROPE_THETA = 10000.0


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and constants of one decoder. Widths are counts of elements, positions counts of
    tokens.
    """

    family: Family
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    rope_theta: float
    rope_scaling: RopeScaling
    rms_norm_eps: float
    tie_word_embeddings: bool
    qk_norm: bool
    attention_bias: bool
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None

    def __post_init__(self) -> None:
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"config: num_attention_heads must be a multiple of num_key_value_heads, "
                f"found {self.num_heads} and {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"config: head_dim must be even for rotation, found {self.head_dim}")

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def query_width(self) -> int:
        """Width of all query heads side by side."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads side by side; values have the same."""
        return self.num_kv_heads * self.head_dim

    @classmethod
    def from_hf(
        cls, config: Mapping[str, Any], generation: Mapping[str, Any] | None = None
    ) -> DecoderConfig:
        """Read the parsed config.json (and generation_config.json, whose end tokens win where it
        has any).

        Both layouts of the rotary settings are understood: ``rope_theta`` with ``rope_scaling`` and
        ``rope_parameters``. Raises ValueError for a missing key or for anything this decoder
        doesn't compute.
        """
        family = _family(config)
        _refuse_unsupported(config)
        num_heads = _integer(config, "num_attention_heads")
        hidden_size = _integer(config, "hidden_size")
        rope = _rope_settings(config)
        return cls(
            family=family,
            hidden_size=hidden_size,
            intermediate_size=_integer(config, "intermediate_size"),
            num_layers=_integer(config, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=config.get("num_key_value_heads") or num_heads,
            head_dim=config.get("head_dim") or hidden_size // num_heads,
            vocab_size=_integer(config, "vocab_size"),
            max_position=_integer(config, "max_position_embeddings"),
            rope_theta=float(rope.get("rope_theta") or DEFAULT_ROPE_THETA),
            rope_scaling=RopeScaling.from_hf(rope),
            rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            qk_norm=family == "qwen3",
            attention_bias=bool(config.get("attention_bias", False)),
            eos_token_ids=_end_tokens(generation or {}) or _end_tokens(config),
            bos_token_id=config.get("bos_token_id"),
        )


def _family(config: Mapping[str, Any]) -> Family:
    found = config.get("model_type")
    for family in FAMILIES:
        if found == family:
            return family
    raise ValueError(f"config: model_type must be one of {', '.join(FAMILIES)}, found {found!r}")


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    if config.get("use_sliding_window"):
        raise ValueError(
            "config: use_sliding_window must be false, sliding windows aren't computed"
        )
    required = {"hidden_act": "silu", "mlp_bias": False, "partial_rotary_factor": 1.0}
    for key, expected in required.items():
        found = config.get(key)
        if found is not None and found != expected:
            raise ValueError(f"config: {key} must be {expected!r}, found {found!r}")


def _integer(config: Mapping[str, Any], key: str) -> int:
    found = config.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"config: {key} must be a positive integer, found {found!r}")
    return found


def _rope_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """One flat mapping with rope_theta and the scaling's own keys, from either layout."""
    settings: dict[str, Any] = {"rope_theta": config.get("rope_theta")}
    settings.update(config.get("rope_scaling") or {})
    settings.update(config.get("rope_parameters") or {})
    return settings


def _end_tokens(config: Mapping[str, Any]) -> tuple[int, ...]:
    found = config.get("eos_token_id")
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list | tuple) else (int(found),)
