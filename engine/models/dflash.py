"""DFlash: the block-diffusion drafter of arXiv 2602.06036, one denoising step over a block of masked positions.

Context enters as keys and values made from the target's hidden states, never as rows of the drafter. Memory and mask
are the caller's: an attention callback sees queries, keys and values of the block rows, so that decoding with a cache
and training over many blocks at once run the same code. Not covered: DFlash2's convolutions and candidate selector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.dflash_config import DFlashConfig
from engine.models.linear import LinearKind, Projection, best_kind, frozen, projection
from engine.models.norm import rms_norm
from engine.models.rope import rope_table, rotate

# attention(layer, q [..., rows, num_heads, head_dim], k and v [..., rows, num_kv_heads, head_dim]) -> like q, all of
# the block rows; context keys and values are the callback's to add. It applies the scale head_dim ** -0.5.
BlockAttention = Callable[[int, Tensor, Tensor, Tensor], Tensor]
KeysValues = tuple[Tensor, Tensor]  # [..., rows, num_kv_heads, head_dim] each
Turn = tuple[Tensor, Tensor]  # cosines and signed sines [..., rows, 1, head_dim]


class DFlashLayer(nn.Module):
    """Weights of one layer; matrices are [out, in]. Context needs ``kv`` and ``k_norm`` alone."""

    def __init__(
        self, config: DFlashConfig, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        super().__init__()
        hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        biased, normed = config.attention_bias, config.qk_norm

        made = partial(projection, dtype=dtype, device=device)
        self.config = config
        self.input_norm = frozen((hidden,), dtype, device)
        self.q = made(config.query_width, hidden, bias=biased)
        self.kv = made(2 * config.kv_width, hidden, bias=biased)  # rows: keys, values
        self.q_norm = frozen((head_dim,), dtype, device) if normed else None
        self.k_norm = frozen((head_dim,), dtype, device) if normed else None
        self.out = made(hidden, config.query_width, bias=biased)
        self.mlp_norm = frozen((hidden,), dtype, device)
        self.gate_up = made(2 * inner, hidden)  # rows: gate, up
        self.down = made(hidden, inner)

    def keys_values(self, rows: Tensor, turn: Turn) -> KeysValues:
        """Keys (normed if the drafter does so, and rotated) and values of rows [..., rows, hidden_size]."""
        keys, values = self._heads(self.kv(rows)).chunk(2, dim=-2)
        return rotate(self._norm(keys, self.k_norm), *turn), values

    def forward(self, hidden: Tensor, turn: Turn, index: int, attention: BlockAttention) -> Tensor:
        """Residual stream of the block rows [..., rows, hidden_size] before this layer to that after it."""
        normed = self._norm(hidden, self.input_norm)
        query = rotate(self._norm(self._heads(self.q(normed)), self.q_norm), *turn)
        attended = attention(index, query, *self.keys_values(normed, turn))
        hidden = hidden + self.out(attended.flatten(-2))
        gate_up: Tensor = self.gate_up(self._norm(hidden, self.mlp_norm))
        gate, up = gate_up.chunk(2, dim=-1)
        down: Tensor = self.down(F.silu(gate) * up)
        return hidden + down

    def _heads(self, flat: Tensor) -> Tensor:
        return flat.view(*flat.shape[:-1], -1, self.config.head_dim)

    def _norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else norm(x, weight, self.config.rms_norm_eps)


class DFlash(nn.Module):
    """The drafter without its target. Weights are uninitialised and without gradient until somebody sets both.

    A trainer calls ``requires_grad_()``; decoding on a CPU is faster after :meth:`pack`.
    """

    rope: Tensor  # [positions, head_dim], see rope_table
    draft_ids: (
        Tensor | None
    )  # int64 [draft_vocab_size] ascending, the tokens that can be drafted; None: all
    never: Tensor | None  # bool [vocab_size], True: never drafted

    def __init__(
        self,
        config: DFlashConfig,
        *,
        positions: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """``positions``: how many the target has, where that is more than the drafter's own ``max_position``."""
        super().__init__()
        self.config = config
        self.fc = Projection(frozen((config.hidden_size, config.feature_width), dtype, device))
        self.hidden_norm = frozen((config.hidden_size,), dtype, device)
        layers = [DFlashLayer(config, dtype, device) for _ in range(config.num_layers)]
        self.layers = nn.ModuleList(layers)
        self.final_norm = frozen((config.hidden_size,), dtype, device)
        rows = max(config.max_position, positions) + config.block_size
        table = rope_table(config.rope_theta, config.head_dim, config.rope_scaling, rows)
        self.register_buffer("rope", table.to(device=device, dtype=dtype), persistent=False)
        self.register_buffer("draft_ids", None, persistent=False)
        self.register_buffer("never", None, persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.hidden_norm.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, context and hidden states."""
        return self.hidden_norm.dtype

    def pack(self) -> LinearKind:
        """Bring the weights into the form that this device multiplies fastest; see :meth:`Decoder.pack`."""
        kind = best_kind(self.dtype, self.device)
        if kind is LinearKind.ONEDNN_PACKED:
            for module in self.modules():
                if isinstance(module, Projection):
                    module.pack()
        return kind

    def restrict(self, ids: Tensor) -> None:
        """Draft none but ``ids`` int64 [draft_vocab_size], ascending.

        Raises ValueError for another number than the config's, or ids outside the vocabulary or out of order.
        """
        size, vocab = self.config.draft_vocab_size, self.config.vocab_size
        if len(ids) != size:
            raise ValueError(f"draft vocabulary: expected {size} tokens, found {len(ids)}")
        listed = ids.tolist()
        for before, token in zip([-1, *listed], listed, strict=False):
            if not before < token < vocab:
                raise ValueError(
                    f"draft vocabulary: expected ascending token ids up to {vocab - 1}, "
                    f"found {token} after {before}"
                )
        never = torch.ones(vocab, dtype=torch.bool, device=self.device)
        never[ids.to(self.device)] = False
        self.draft_ids, self.never = ids.to(self.device), never

    def context(self, features: Tensor) -> Tensor:
        """Features [..., S, feature_width] to the context rows [..., S, hidden_size] that all layers share."""
        return norm(self.fc(features), self.hidden_norm, self.config.rms_norm_eps)

    def context_keys_values(self, features: Tensor, positions: Tensor) -> list[KeysValues]:
        """Keys and values of committed tokens, a layer each, ready to be kept.

        ``features`` [..., S, feature_width]: outputs of the config's target layers side by side; ``positions`` int64
        [..., S] or [S]: the tokens' own.
        """
        rows, turn = self.context(features), self.turn(positions)
        return [self.layer(index).keys_values(rows, turn) for index in range(len(self.layers))]

    def block_ids(self, roots: Tensor, block_size: int | None = None) -> Tensor:
        """Roots int64 [...] to input ids [..., block_size]: each root, then masks."""
        size = self.config.block_size if block_size is None else block_size
        masks = roots.new_full((*roots.shape, size - 1), self.config.mask_token_id)
        return torch.cat((roots.unsqueeze(-1), masks), dim=-1)

    def forward(self, embeddings: Tensor, positions: Tensor, attention: BlockAttention) -> Tensor:
        """Run block rows through every layer and the final norm.

        ``embeddings`` [..., rows, hidden_size]: the target's, of :meth:`block_ids`; ``positions`` int64 [..., rows]:
        row j stands at the root's position + j. Returns [..., rows, hidden_size] for :meth:`logits`. Positions are
        not checked, so that nothing waits for the device.
        """
        hidden = _scaled(embeddings, self.config.input_embedding_scale)
        turn = self.turn(positions)
        for index in range(len(self.layers)):
            hidden = self.layer(index)(hidden, turn, index, attention)
        return norm(hidden, self.final_norm, self.config.rms_norm_eps)

    def logits(self, hidden: Tensor, lm_head: Callable[[Tensor], Tensor]) -> Tensor:
        """Rows [..., hidden_size] to logits [..., vocab_size] by the target's ``lm_head``; -inf: never drafted.

        Row j of a block is about the token at its own position; row 0, the root, says nothing.
        """
        out = _scaled(lm_head(hidden), self.config.output_multiplier)
        cap = self.config.final_logit_softcapping
        if cap is not None:
            out = cap * torch.tanh(out / cap)
        return out if self.never is None else out.masked_fill(self.never, -torch.inf)

    def layer(self, index: int) -> DFlashLayer:
        """One layer."""
        layer = self.layers[index]
        assert isinstance(layer, DFlashLayer), type(layer)
        return layer

    def turn(self, positions: Tensor) -> Turn:
        """Cosines and signed sines of positions int64 [...], [..., 1, head_dim] each; nothing is checked."""
        cosine, sine = self.rope[positions].unsqueeze(-2).chunk(2, dim=-1)
        return torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm; the fast one works in place, which gradients can't pass."""
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    return rms_norm(x, weight, eps)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor


def layer_visibility(
    config: DFlashConfig, layer: int, queries: Tensor, keys: Tensor
) -> Tensor | None:
    """What causality and window of ``layer`` let a block row see: bool [..., Q, K], or None for everything.

    ``queries`` int64 [..., Q] and ``keys`` int64 [..., K] are positions. That a row sees only the context before its
    root and its own block is for the caller to add.
    """
    window = config.window(layer)
    if window is None and not config.causal(layer):
        return None
    back = queries.unsqueeze(-1) - keys.unsqueeze(-2)
    seen = back >= 0 if config.causal(layer) else torch.ones_like(back, dtype=torch.bool)
    return seen if window is None else seen & (back < window)
