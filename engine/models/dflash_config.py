"""DFlashConfig: the facts of a DFlash drafter that its mathematics depends on.

Reading them from a config.json and writing them back is :mod:`engine.models.dflash_hf`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from engine.models.config import DEFAULT_ROPE_THETA, DecoderConfig
from engine.models.rope import RopeScaling

LAYER_TYPES = ("full_attention", "sliding_attention")


# Sizes beyond any drafter's, so that nothing is allocated for what a damaged file claims.
LARGEST = {
    "hidden_size": 1 << 16,
    "intermediate_size": 1 << 18,
    "num_layers": 256,
    "num_heads": 1024,
    "num_kv_heads": 1024,
    "head_dim": 1024,
    "vocab_size": 1 << 22,
    "max_position": 1 << 22,
    "block_size": 1024,
}
FINITE = (
    "rope_theta",
    "rms_norm_eps",
    "input_embedding_scale",
    "output_multiplier",
    "final_logit_softcapping",
)


@dataclass(frozen=True)
class DFlashConfig:
    """Sizes and constants of one drafter. Widths are counts of elements, positions and windows counts of tokens.

    Raises ValueError, naming the key as in a config.json, for values that contradict each other.
    """

    hidden_size: int  # of the drafter and of its target
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int  # the target's
    max_position: int
    block_size: int  # the root and the draft positions
    mask_token_id: int
    target_layer_ids: tuple[int, ...]  # target layers whose output is a feature, in this order
    num_target_layers: int
    layer_types: tuple[str, ...]  # of LAYER_TYPES, one a layer
    sliding_window: int | None = None
    is_causal: bool | None = None  # inside the block; None: in sliding layers only
    rope_theta: float = DEFAULT_ROPE_THETA
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    rms_norm_eps: float = 1e-6
    qk_norm: bool = True
    attention_bias: bool = False
    draft_vocab_size: int | None = None  # None: every token can be drafted
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None

    def __post_init__(self) -> None:
        for name, most in LARGEST.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name}: expected at most {most}, found {getattr(self, name)}")
        for name in FINITE:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}: expected a positive number, found {value}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_attention_heads: expected a multiple of num_key_value_heads, "
                f"found {self.num_heads} and {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim: expected an even number, found {self.head_dim}")
        if self.block_size < 2:
            raise ValueError(f"block_size: expected at least 2, found {self.block_size}")
        _below("mask_token_id", self.mask_token_id, self.vocab_size, "vocab_size")
        if not self.target_layer_ids:
            raise ValueError("target_layer_ids: expected at least one layer, found none")
        for layer in self.target_layer_ids:
            _below("target_layer_ids", layer, self.num_target_layers, "num_target_layers")
        if self.draft_vocab_size is not None and self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"draft_vocab_size: expected at most {self.vocab_size} (vocab_size), "
                f"found {self.draft_vocab_size}"
            )
        self._check_layer_types()

    def _check_layer_types(self) -> None:
        if len(self.layer_types) != self.num_layers:
            raise ValueError(
                f"layer_types: expected {self.num_layers} entries (num_hidden_layers), "
                f"found {len(self.layer_types)}"
            )
        for kind in self.layer_types:
            if kind not in LAYER_TYPES:
                raise ValueError(
                    f"layer_types: expected {' or '.join(LAYER_TYPES)}, found {kind!r}"
                )
        if "sliding_attention" in self.layer_types and self.sliding_window is None:
            raise ValueError(
                "sliding_window: expected a positive integer (layer_types has sliding_attention), found None"
            )

    @classmethod
    def for_target(
        cls,
        target: DecoderConfig,
        *,
        num_layers: int,
        layer_types: tuple[str, ...] | None = None,
        **others: Any,
    ) -> DFlashConfig:
        """A drafter of the target's widths; full attention unless told otherwise. ``others``: further fields."""
        return cls(
            hidden_size=target.hidden_size,
            intermediate_size=target.intermediate_size,
            num_layers=num_layers,
            num_heads=target.num_heads,
            num_kv_heads=target.num_kv_heads,
            head_dim=target.head_dim,
            vocab_size=target.vocab_size,
            max_position=target.max_position,
            num_target_layers=target.num_layers,
            layer_types=layer_types or ("full_attention",) * num_layers,
            **others,
        )

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

    @property
    def feature_width(self) -> int:
        """Width of one token's features, those of all chosen target layers side by side."""
        return len(self.target_layer_ids) * self.hidden_size

    def window(self, layer: int) -> int | None:
        """How many tokens back a row of ``layer`` sees, its own included; None: all."""
        return self.sliding_window if self.layer_types[layer] == "sliding_attention" else None

    def causal(self, layer: int) -> bool:
        """Whether a block row of ``layer`` sees no later row of its block."""
        if self.is_causal is not None:
            return self.is_causal
        return self.layer_types[layer] == "sliding_attention"


def _below(key: str, found: int, limit: int, limit_key: str) -> None:
    if not 0 <= found < limit:
        raise ValueError(f"{key}: expected 0 … {limit - 1} ({limit_key} is {limit}), found {found}")
