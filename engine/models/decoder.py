"""Decoder: a Llama or Qwen3 forward pass over a flat list of rows, with attention left to the
caller.

Rows carry no batch dimension: tokens of one request, of many requests or of a draft tree stand
beside each other, and the attention callback alone knows which row sees what. The KV memory and the
mask are the callback's too. Not covered: training, dropout, sliding windows, sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.config import DecoderConfig
from engine.models.layer import DecoderLayer, Rotation
from engine.models.linear import LinearKind, Projection, best_kind, frozen
from engine.models.norm import rms_norm
from engine.models.rope import check_positions, rope_table, rotation

# attention(layer, q [rows, num_heads, head_dim], k and v [rows, num_kv_heads, head_dim]) -> like q.
# Softmax scale is head_dim ** -0.5 and is applied by the callback; q and k arrive normed and
# rotated.
AttentionFn = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class DecoderOutput:
    """What one forward pass yields."""

    logits: Tensor  # float32 (float64 of a float64 model) [rows or len(logits_rows), vocab_size]
    features: Tensor  # [len(feature_layers), rows, hidden_size], residual stream after each layer


class Decoder(nn.Module):
    """Decoder-only transformer. Weights are uninitialised until a loader or ``random_decoder``
    fills them.
    """

    rope: Tensor  # [max_position, head_dim], see rope_table

    def __init__(
        self,
        config: DecoderConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        self.config = config
        shape = (config.vocab_size, config.hidden_size)
        self.embedding = frozen(shape, dtype, device)
        tied = config.tie_word_embeddings
        self.head = Projection(self.embedding if tied else frozen(shape, dtype, device))
        self.final_norm = frozen((config.hidden_size,), dtype, device)
        layers = [DecoderLayer(config, dtype, device) for _ in range(config.num_layers)]
        self.layers = nn.ModuleList(layers)
        table = rope_table(
            config.rope_theta, config.head_dim, config.rope_scaling, config.max_position
        )
        self.register_buffer("rope", table.to(device=device, dtype=dtype), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, hidden states and features."""
        return self.embedding.dtype

    @property
    def linear_kind(self) -> LinearKind:
        """How the products are computed: LinearKind.TORCH until :meth:`pack` has found something
        better.
        """
        return self.head.kind

    def pack(self) -> LinearKind:
        """Bring the weights into the form that this device multiplies fastest; call it when they
        are final.

        On a CPU a float32 model is packed: it can then neither be moved, cast nor written to, and a
        tied head takes memory of its own. Elsewhere nothing changes.
        """
        if best_kind(self.dtype, self.device) is LinearKind.ONEDNN_PACKED:
            for module in self.modules():
                if isinstance(module, Projection):
                    module.pack()
        return self.linear_kind

    def embed(self, input_ids: Tensor) -> Tensor:
        """Token ids int64 [...] to embeddings [..., hidden_size]."""
        return F.embedding(input_ids, self.embedding)

    def norm(self, hidden: Tensor) -> Tensor:
        """The final norm, [..., hidden_size] to the same shape."""
        return rms_norm(hidden, self.final_norm, self.config.rms_norm_eps)

    def lm_head(self, hidden: Tensor) -> Tensor:
        """Normed hidden states [..., hidden_size] to logits [..., vocab_size], float32 for 16-bit
        models.
        """
        logits: Tensor = self.head(hidden)
        return logits.float() if logits.dtype.itemsize < 4 else logits

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        attention: AttentionFn,
        *,
        feature_layers: Sequence[int] = (),
        logits_rows: Tensor | None = None,
        check: bool = True,
    ) -> DecoderOutput:
        """Run rows ``input_ids`` int64 [rows] at ``positions`` int64 [rows] through every layer.

        ``feature_layers`` are layer indices; features[k] is the residual stream after layer
        feature_layers[k], before the final norm. ``logits_rows`` int64 [n] restricts the logits to
        those rows. Raises ValueError for positions outside the rotary table, unequal lengths or a
        layer that doesn't exist; ``check=False`` leaves out the look at the positions, which waits
        for the device.
        """
        self._check_arguments(input_ids, positions, feature_layers)
        if check:
            check_positions(self.rope, positions)
        turn = rotation(self.rope, positions)
        hidden, kept = self._run_layers(self.embed(input_ids), turn, attention, feature_layers)
        wanted = hidden if logits_rows is None else hidden.index_select(0, logits_rows)
        features = [kept[layer] for layer in feature_layers]
        stacked = torch.stack(features) if features else hidden.new_empty((0, *hidden.shape))
        return DecoderOutput(self.lm_head(self.norm(wanted)), stacked)

    def _run_layers(
        self, hidden: Tensor, turn: Rotation, attention: AttentionFn, feature_layers: Sequence[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        kept: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, turn, index, attention)
            if index in feature_layers:
                kept[index] = hidden
        return hidden, kept

    def _check_arguments(
        self, input_ids: Tensor, positions: Tensor, feature_layers: Sequence[int]
    ) -> None:
        if input_ids.ndim != 1 or input_ids.shape != positions.shape:
            raise ValueError(
                f"forward: expected input_ids and positions of one shape [rows], "
                f"found {list(input_ids.shape)} and {list(positions.shape)}"
            )
        for layer in feature_layers:
            if not 0 <= layer < self.config.num_layers:
                raise ValueError(
                    f"feature_layers: expected 0 … {self.config.num_layers - 1}, found {layer}"
                )
