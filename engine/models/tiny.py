"""random_decoder: tiny random models of either family, for tests and demonstrations without any
download.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.models.config import DecoderConfig, Family
from engine.models.decoder import Decoder
from engine.models.naming import EMBEDDING, HEAD, named_views
from engine.models.rope import RopeScaling

# Gains over 1 / sqrt(fan in). Sharp queries and strong values let earlier tokens, not the last one
# alone, decide.
QUERY_KEY_GAIN = 2.0
BRANCH_GAIN = 2.0
EMBEDDING_STD = 0.5


def random_decoder(
    family: Family,
    *,
    seed: int,
    vocab_size: int = 50,
    hidden_size: int = 32,
    num_layers: int = 2,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 8,
    max_position: int = 512,
    dtype: torch.dtype = torch.float32,
    logit_scale: float = 4.0,
) -> Decoder:
    """A model whose weights follow from ``seed`` alone; its head is untied and nothing ends its
    text.

    ``logit_scale`` is about the standard deviation of the logits of one row. The same seed gives
    the same weights in every dtype up to rounding.
    """
    config = DecoderConfig(
        family=family,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        max_position=max_position,
        rope_theta=10000.0,
        rope_scaling=RopeScaling(),
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        qk_norm=family == "qwen3",
        attention_bias=False,
        eos_token_ids=(),
        bos_token_id=None,
    )
    model = Decoder(config, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    for name, view in named_views(model).items():
        view.copy_(_initial(name, view.shape, generator, logit_scale))
    return model


def _initial(
    name: str, shape: torch.Size, generator: torch.Generator, logit_scale: float
) -> Tensor:
    """float32 start values of one weight."""
    noise = torch.randn(shape, generator=generator)
    if len(shape) == 1:
        per_head = "q_norm" in name or "k_norm" in name  # undoes the gain of q_proj and k_proj
        return (QUERY_KEY_GAIN if per_head else 1.0) * (1.0 + 0.1 * noise)
    if name == EMBEDDING:
        return EMBEDDING_STD * noise
    return _gain(name, logit_scale) / math.sqrt(shape[-1]) * noise


def _gain(name: str, logit_scale: float) -> float:
    if name == HEAD:
        return logit_scale
    return QUERY_KEY_GAIN if "q_proj" in name or "k_proj" in name else BRANCH_GAIN
