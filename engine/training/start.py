"""A new drafter for a target: its sizes and its first weights."""

from __future__ import annotations

import math

import torch

from engine.models.decoder import Decoder
from engine.models.dflash import DFlash
from engine.models.dflash_config import DFlashConfig

FINAL_NORM_SHARE = 0.3  # of the target's: a new drafter's logits must not begin as confident


def new_drafter(
    target: Decoder,
    *,
    num_layers: int,
    block_size: int,
    mask_token_id: int,
    target_layer_ids: tuple[int, ...] | None = None,
    seed: int = 0,
) -> DFlash:
    """Untrained, of the target's widths, dtype and device; branches begin small, the final norm below the target's."""
    shape = target.config
    config = DFlashConfig.for_target(
        shape,
        num_layers=num_layers,
        block_size=block_size,
        mask_token_id=mask_token_id,
        target_layer_ids=target_layer_ids or spread_layers(shape.num_layers, 5),
        rope_theta=shape.rope_theta,
        rope_scaling=shape.rope_scaling,
        rms_norm_eps=shape.rms_norm_eps,
        qk_norm=shape.qk_norm,
    )
    drafter = DFlash(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in drafter.named_parameters():
        if weight.ndim == 1:
            weight.fill_(1.0)
        else:
            small = name.endswith(("out.weight", "down.weight"))
            gain = 1 / math.sqrt(2 * num_layers) if small else 1.0
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(gain / math.sqrt(weight.shape[1]) * noise)
    drafter.final_norm.copy_(FINAL_NORM_SHARE * target.final_norm.float().cpu())
    return drafter.to(device=target.device, dtype=target.dtype)


def spread_layers(num_layers: int, count: int) -> tuple[int, ...]:
    """``count`` layers from the second to the third from the end, evenly apart, as in DFlash's checkpoints."""
    last = max(num_layers - 3, 0)
    first = min(1, last)
    count = min(count, last - first + 1)
    steps = max(count - 1, 1)
    return tuple(round(first + i * (last - first) / steps) for i in range(count))
