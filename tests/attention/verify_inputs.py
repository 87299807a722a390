"""Random inputs of tree-verify attention, with the argument names of SGLang's ``extend_attention_fwd``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

GUARD = 7  # rows, slots and cells beyond what the metadata reaches


@dataclass(frozen=True)
class Sizes:
    """Of one batch: rows and prefix length of each request, and the heads."""

    rows: tuple[int, ...]
    prefixes: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    dim: int = 16


def make_inputs(
    sizes: Sizes,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    window: int = -1,
    offsets: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """Keyword arguments; the mask is random in all columns, the output holds 77 everywhere."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    total, held = sum(sizes.rows) + GUARD, sum(sizes.prefixes)
    slots = held + GUARD
    skipped = offsets or (0,) * len(sizes.rows)
    cells = [n * (p + n + o) for n, p, o in zip(sizes.rows, sizes.prefixes, skipped, strict=True)]
    inputs: dict[str, Any] = {
        "q_extend": normal(total, sizes.heads, sizes.dim),
        "k_extend": normal(total, sizes.kv_heads, sizes.dim),
        "v_extend": normal(total, sizes.kv_heads, sizes.dim),
        "o_extend": torch.full((total, sizes.heads, sizes.dim), 77.0).to(device, dtype),
        "k_buffer": normal(slots, sizes.kv_heads, sizes.dim),
        "v_buffer": normal(slots, sizes.kv_heads, sizes.dim),
        "qo_indptr": offsets_of(sizes.rows, device),
        "kv_indptr": offsets_of(sizes.prefixes, device),
        "kv_indices": torch.randperm(slots, generator=generator)[:held].to(device),
        "custom_mask": torch.randint(
            0, 2, (sum(cells) + 50,), dtype=torch.uint8, generator=generator
        ).to(device),
        "is_causal": True,
        "mask_indptr": offsets_of(cells, device),
        "max_len_extend": max(sizes.rows, default=0),
    }
    if window > 0:
        inputs["sliding_window_size"] = window
        inputs["window_kv_offsets"] = torch.tensor(skipped, dtype=torch.int32, device=device)
    return inputs


def offsets_of(counts: Any, device: str) -> Tensor:
    """``[0, c0, c0 + c1, …]`` as int64."""
    return torch.tensor([0, *accumulate(counts)], device=device)


def poisoned(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same with an output of its own."""
    return inputs | {"o_extend": torch.full_like(inputs["o_extend"], 77.0)}
