"""random_dflash: tiny random drafters for a given target, for tests and demonstrations without any download."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.models.decoder import Decoder
from engine.models.dflash import DFlash
from engine.models.dflash_config import DFlashConfig
from engine.models.dflash_names import named_views
from engine.models.tiny import BRANCH_GAIN, QUERY_KEY_GAIN


def random_dflash(
    target: Decoder,
    *,
    seed: int,
    num_layers: int = 2,
    block_size: int = 8,
    target_layer_ids: tuple[int, ...] | None = None,
    qk_norm: bool = True,
    layer_types: tuple[str, ...] | None = None,
    sliding_window: int | None = None,
    draft_vocab_size: int | None = None,
) -> DFlash:
    """A drafter of ``target``'s widths, dtype and device whose weights follow from ``seed`` alone.

    It reads all target layers unless told otherwise; its mask token is the target's last; a reduced vocabulary is
    spread evenly over the whole one.
    """
    shape = target.config
    config = DFlashConfig.for_target(
        shape,
        num_layers=num_layers,
        layer_types=layer_types,
        block_size=block_size,
        mask_token_id=shape.vocab_size - 1,
        target_layer_ids=target_layer_ids or tuple(range(shape.num_layers)),
        sliding_window=sliding_window,
        qk_norm=qk_norm,
        draft_vocab_size=draft_vocab_size,
    )
    model = DFlash(config, dtype=target.dtype)
    generator = torch.Generator().manual_seed(seed)
    for name, view in named_views(model).items():
        view.copy_(_initial(name, view.shape, generator))
    if draft_vocab_size is not None:
        model.restrict(torch.arange(draft_vocab_size) * shape.vocab_size // draft_vocab_size)
    return model.to(target.device)


def _initial(name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """float32 start values of one weight, sharp enough for the context to decide."""
    noise = torch.randn(shape, generator=generator)
    sharp = any(part in name for part in ("q_proj", "k_proj", "q_norm", "k_norm"))
    if len(shape) == 1:
        return (QUERY_KEY_GAIN if sharp else 1.0) * (1.0 + 0.1 * noise)
    return (QUERY_KEY_GAIN if sharp else BRANCH_GAIN) / math.sqrt(shape[-1]) * noise
