"""Rotary position embedding: inverse frequencies, their scaling, the table and the half rotation.

The rotation is that of Su et al., "RoFormer" (arXiv 2104.09864) in the half layout: element i of a
head turns together with element i + head_dim / 2. Scaling: none, linear position interpolation
(arXiv 2306.15595) and the frequency-banded scaling of Llama 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from engine.models.device import HOST, to_host

RopeKind = Literal["none", "linear", "llama3"]
LLAMA3_KEYS = ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


@dataclass(frozen=True)
class RopeScaling:
    """How inverse frequencies are slowed down; the last three fields count for kind llama3 only."""

    kind: RopeKind = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192  # tokens

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> RopeScaling:
        """Read rope_scaling or rope_parameters; ValueError for a kind that isn't computed."""
        kind = settings.get("rope_type") or settings.get("type") or "default"
        if kind == "default":
            return cls()
        if kind == "linear":
            return cls("linear", _number(settings, "factor"))
        if kind == "llama3":
            low, high, original = (_number(settings, key) for key in LLAMA3_KEYS)
            return cls("llama3", _number(settings, "factor"), low, high, int(original))
        raise ValueError(f"config: rope_type must be default, linear or llama3, found {kind!r}")


def _number(settings: Mapping[str, Any], key: str) -> float:
    found = settings.get(key)
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise ValueError(f"config: rope scaling needs a number for {key}, found {found!r}")
    return float(found)


def inverse_frequencies(theta: float, head_dim: int, scaling: RopeScaling) -> Tensor:
    """float32 [head_dim / 2] angles per position, in radians."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64, device=HOST).float() / head_dim
    plain = 1.0 / (theta**exponents)
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        return _llama3_frequencies(plain, scaling)
    return plain


def _llama3_frequencies(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Keep short waves, divide long waves by the factor, blend those between."""
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = (
        scaling.original_max_position * plain / (2 * math.pi)
    )  # whole turns over the old context
    blend = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - blend) * plain / scaling.factor + blend * plain


def rope_table(theta: float, head_dim: int, scaling: RopeScaling, rows: int) -> Tensor:
    """float32 [rows, head_dim] on the host: a position's cosines, then its sines, head_dim / 2 of each."""
    frequencies = inverse_frequencies(theta, head_dim, scaling)
    angles = torch.outer(torch.arange(rows, dtype=torch.float32, device=HOST), frequencies)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def rotation(table: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines [rows, 1, head_dim] for :func:`rotate`, from positions int64 [rows].

    Nothing is checked here, so that nothing waits for the device; see :func:`check_positions`.
    """
    cosine, sine = table.index_select(0, positions).unsqueeze(1).chunk(2, dim=-1)
    return torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1)


def check_positions(table: Tensor, positions: Tensor) -> None:
    """Raises ValueError for a position outside the table. Waits for the device."""
    if not positions.numel():
        return
    low, high = to_host(torch.stack(torch.aminmax(positions))).tolist()
    if low < 0 or high >= table.shape[0]:
        outside = low if low < 0 else high
        raise ValueError(
            f"positions: expected 0 … {table.shape[0] - 1} (the rotary table has "
            f"{table.shape[0]} rows), found {outside}"
        )


def rotate(heads: Tensor, cosine: Tensor, signed_sine: Tensor) -> Tensor:
    """Rotate [rows, heads, head_dim] by the position of each row."""
    swapped = heads.roll(heads.shape[-1] // 2, -1)
    return torch.addcmul(heads * cosine, swapped, signed_sine)
