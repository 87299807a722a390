"""One decoder layer: RMSNorm, grouped-query attention through a callback, RMSNorm, SwiGLU.

The query, key and value weights are one matrix, and so are gate and up: a row then reads memory in
few long runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.config import DecoderConfig
from engine.models.linear import frozen, projection
from engine.models.norm import rms_norm
from engine.models.rope import rotate

Rotation = tuple[Tensor, Tensor]  # cosines and signed sines [rows, 1, head_dim]


class DecoderLayer(nn.Module):
    """Weights of one layer, in the order in which they are used; matrices are [out, in]."""

    def __init__(
        self, config: DecoderConfig, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        super().__init__()
        hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        qkv_width = config.query_width + 2 * config.kv_width
        biased, normed = config.attention_bias, config.qk_norm

        made = partial(projection, dtype=dtype, device=device)
        self.config = config
        self.input_norm = frozen((hidden,), dtype, device)
        self.qkv = made(qkv_width, hidden, bias=biased)  # rows: queries, keys, values
        self.q_norm = frozen((head_dim,), dtype, device) if normed else None
        self.k_norm = frozen((head_dim,), dtype, device) if normed else None
        self.out = made(hidden, config.query_width, bias=biased)
        self.mlp_norm = frozen((hidden,), dtype, device)
        self.gate_up = made(2 * inner, hidden)  # rows: gate, up
        self.down = made(hidden, inner)

    def forward(
        self,
        hidden: Tensor,
        turn: Rotation,
        index: int,
        attention: Callable[[int, Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Residual stream [rows, hidden_size] before this layer to that after it."""
        eps = self.config.rms_norm_eps
        query, key, value = self._heads(rms_norm(hidden, self.input_norm, eps), turn)
        attended = attention(index, query, key, value).reshape(hidden.shape[0], -1)
        hidden = hidden + self.out(attended)
        gate_up: Tensor = self.gate_up(rms_norm(hidden, self.mlp_norm, eps))
        gate, up = gate_up.chunk(2, dim=-1)
        down: Tensor = self.down(F.silu(gate) * up)
        return hidden + down

    def _heads(self, normed: Tensor, turn: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (both normed per head if the family does so, and rotated) and values."""
        config = self.config
        fused: Tensor = self.qkv(normed)
        heads = fused.view(normed.shape[0], -1, config.head_dim)
        num_heads, num_kv_heads = config.num_heads, config.num_kv_heads
        rotated = rotate(self._norm_heads(heads[:, : num_heads + num_kv_heads]), *turn)
        return rotated[:, :num_heads], rotated[:, num_heads:], heads[:, num_heads + num_kv_heads :]

    def _norm_heads(self, heads: Tensor) -> Tensor:
        if self.q_norm is None or self.k_norm is None:
            return heads
        eps, split = self.config.rms_norm_eps, self.config.num_heads
        query = rms_norm(heads[:, :split], self.q_norm, eps)
        return torch.cat((query, rms_norm(heads[:, split:], self.k_norm, eps)), dim=1)
