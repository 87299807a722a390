"""A DFlash draft for a captured batch: the block over the committed context, logits, the best tokens, the tree.

The context's keys and values lie in pools of the drafter's own, at the slots of the target's: a committed token has one
slot in both. The block's rows see the context and one another, and are written nowhere.

Covered: full, causal and sliding layers. Not covered: restricted vocabularies beyond a mask, DFlash2.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention.chain import depth_on
from engine.attention.tree_verify import tree_verify_attention
from engine.decoding.device_tree import TreeTensors, grow_on_device
from engine.graphs.candidates import best_tokens
from engine.graphs.forward import drafter_stack
from engine.graphs.layout import BatchState, Layout
from engine.graphs.linear import is_few
from engine.graphs.rows import Heads, Memory, normed, place_heads
from engine.graphs.walk import Walked
from engine.models.decoder import Decoder
from engine.models.dflash import DFlash


class DraftStep:
    """The drafter's side of a step, for any captured batch size."""

    def __init__(self, model: DFlash, target: Decoder, slots: int, block_size: int) -> None:
        """``slots``: of the target's pool. Raises ``ValueError`` for a block beyond the trained one."""
        config = model.config
        if not 2 <= block_size <= config.block_size:
            raise ValueError(
                f"block_size: expected 2 … {config.block_size}, which the drafter was trained with, found {block_size}"
            )
        if (model.device, model.dtype) != (target.device, target.dtype):
            raise ValueError(
                f"drafter: expected it on {target.device} in {target.dtype} like its target, "
                f"found it on {model.device} in {model.dtype}"
            )
        self.model, self.target, self.block_size = model, target, block_size
        self.stack = drafter_stack(model)
        shape = (config.num_layers, slots, config.num_kv_heads, config.head_dim)
        self.k_pool = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.v_pool = torch.zeros_like(self.k_pool)
        layers = [model.layer(index) for index in range(config.num_layers)]
        self._context = torch.cat([layer.kv.dense() for layer in layers])
        biases = [layer.kv.bias.detach() for layer in layers if layer.kv.bias is not None]
        self._context_bias = torch.cat(biases) if biases else None
        norms = [layer.k_norm for layer in layers if layer.k_norm is not None]
        self._context_norm = torch.stack(list(norms)) if norms else None
        self._context_heads = Heads(
            0, config.num_kv_heads, config.head_dim, model.rope, config.rms_norm_eps
        )

    @property
    def length(self) -> int:
        """Draft positions."""
        return self.block_size - 1

    def draft(self, state: BatchState, layout: Layout) -> Tensor:
        """Logits [captured, length, V] after :meth:`Layout.prefixes`, of the model's type; -inf: never drafted."""
        rows = self.block_size
        blocks = self.model.block_ids(state.roots, rows)
        place = torch.arange(rows, device=blocks.device)
        positions = (state.seq_lens[:, None] + place).flatten()
        embedded = F.embedding(blocks.flatten(), self.target.embedding)
        if self.model.config.input_embedding_scale != 1.0:
            embedded = embedded * self.model.config.input_embedding_scale
        starts = torch.arange(0, len(positions) + 1, rows, device=blocks.device)

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = q.new_empty(q.shape)
            window = self.model.config.window(layer)
            tree_verify_attention(
                q,
                k,
                v,
                out,
                self.k_pool[layer],
                self.v_pool[layer],
                starts,
                layout.kv_indptr,
                layout.kv_indices,
                None,
                self.model.config.causal(layer),
                None,
                rows,
                # SGLang's window counts the tokens before the row's own.
                sliding_window_size=-1 if window is None else window - 1,
                follows=depth_on(q.device) if is_few(q) else 0,
            )
            return out

        hidden, _ = self.stack.run(embedded, positions, attention, None)
        drafted = hidden.view(layout.captured, rows, -1)[:, 1:]
        return self._logits(drafted)

    def _logits(self, hidden: Tensor) -> Tensor:
        config = self.model.config
        out: Tensor = F.linear(hidden, self.target.head.dense())
        if config.output_multiplier != 1.0:
            out = out * config.output_multiplier
        if (cap := config.final_logit_softcapping) is not None:
            out = cap * torch.tanh(out / cap)
        return out if self.model.never is None else out.masked_fill(self.model.never, -torch.inf)

    def grow(
        self, logits: Tensor, roots: Tensor, budget: int, width: int, kept: int = 0
    ) -> tuple[TreeTensors, tuple[Tensor, Tensor]]:
        """Trees of ``budget`` nodes, and the candidates they grew from.

        ``width``: ranks that a depth may use. Candidates are log-probabilities and tokens [bs, L, at least ``kept``].
        """
        batch, length, vocab = logits.shape
        stored = min(max(width, kept), vocab)
        log_probs, tokens = best_tokens(logits.view(-1, vocab), stored)
        shape = (batch, length, stored)
        log_probs, tokens = log_probs.view(shape), tokens.view(shape)
        return grow_on_device(log_probs, tokens, roots, budget, width), (log_probs, tokens)

    def remember(self, features: Tensor, positions: Tensor, slots: Tensor) -> None:
        """Write the context of committed tokens: ``features`` [rows, feature_width], places and slots int64 [rows]."""
        model = self.model
        rows = F.linear(features, model.fc.dense(), model.fc.bias)
        rows = normed(rows, model.hidden_norm, model.config.rms_norm_eps)
        fused = F.linear(rows, self._context, self._context_bias)
        memory = Memory(self.k_pool, self.v_pool, slots)
        place_heads(fused, positions, self._context_heads, None, self._context_norm, memory)

    def remember_walked(self, features: Tensor, walked: Walked) -> None:
        """The same for what a walk accepted, ``features`` of all rows of the step; padding goes to the padding slot."""
        taken = features.index_select(0, walked.commit_rows.flatten())
        self.remember(taken, walked.commit_positions.flatten(), walked.commit_slots.flatten())
