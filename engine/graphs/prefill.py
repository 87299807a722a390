"""Prompts on the device: one forward over a padded length, captured once a length where graphs are on.

Rows beyond the prompt hold token 0 at position 0 and write to the padding slot; attention is causal, so no row of the
prompt sees them. Covered: any length up to the context's. Not covered: prefixes that are in the cache already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention.tree_verify import tree_verify_attention
from engine.graphs.capture import captured
from engine.graphs.choices import choices
from engine.graphs.drafting import DraftStep
from engine.graphs.forward import Stack, layer_memories
from engine.models.decoder import Decoder
from engine.models.device import HOST
from engine.models.kv_pool import KVPool

SHORTEST = 64  # rows of the smallest captured prompt


@dataclass(frozen=True, eq=False)
class _Rows:
    """Buffers of one padded length."""

    ids: Tensor  # int64 [rows]
    positions: Tensor  # int64 [rows]
    slots: Tensor  # int64 [rows]
    last: Tensor  # int64 [1], the prompt's last row
    qo_indptr: Tensor  # int64 [2]
    root: Tensor  # int64 [1], the first token after the prompt

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> _Rows:
        def zeros(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.int64, device=device)

        bounds = torch.tensor([0, rows], dtype=torch.int64, device=HOST).to(device)
        return cls(zeros(rows), zeros(rows), zeros(rows), zeros(1), bounds, zeros(1))


class Prefill:
    """Forward passes over prompts; keys and values go to the pools of target and drafter."""

    def __init__(
        self,
        target: Decoder,
        stack: Stack,
        drafter: DraftStep | None,
        pool: KVPool,
        *,
        graphs: bool,
    ) -> None:
        self.target, self.stack, self.drafter, self.pool = target, stack, drafter, pool
        self.graphs = graphs
        self._no_prefix = torch.zeros(2, dtype=torch.int32, device=target.device)
        self._no_slots = torch.zeros(1, dtype=torch.int64, device=target.device)
        self._rows: dict[int, _Rows] = {}
        self._captured: dict[int, torch.cuda.CUDAGraph] = {}

    def run(self, prompt: Sequence[int], slots: Tensor) -> int:
        """The token that follows ``prompt``, whose rows are committed to ``slots`` int64 [tokens]."""
        count = len(prompt)
        rows = self.padded(count)
        if rows not in self._rows:
            self._rows[rows] = _Rows.empty(rows, self.target.device)
        buffers = self._rows[rows]
        if self.graphs and rows not in self._captured:
            buffers.slots.zero_()  # a warm-up writes to the padding slot alone
            self._captured[rows] = captured(lambda: self._forward(buffers), self.target.device)
        places = list(range(count)) + [0] * (rows - count)
        buffers.ids.copy_(torch.tensor([*prompt, *[0] * (rows - count)], device=HOST))
        buffers.positions.copy_(torch.tensor(places, device=HOST))
        buffers.slots[:count] = slots
        buffers.slots[count:] = 0
        buffers.last.fill_(count - 1)
        if self.graphs:
            self._captured[rows].replay()
        else:
            self._forward(buffers)
        return int(buffers.root[0])

    def padded(self, count: int) -> int:
        """Rows that a prompt of ``count`` tokens takes: as many, or in graphs a power of two."""
        return max(SHORTEST, 1 << (count - 1).bit_length()) if self.graphs else count

    def _forward(self, rows: _Rows) -> None:
        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = q.new_empty(q.shape)
            tree_verify_attention(
                q,
                k,
                v,
                out,
                self.pool.k[layer],
                self.pool.v[layer],
                rows.qo_indptr,
                self._no_prefix,
                self._no_slots,
                None,
                True,
                None,
                len(rows.ids),
            )
            return out

        wanted = () if self.drafter is None else self.drafter.model.config.target_layer_ids
        memories = layer_memories(self.pool, rows.slots)
        hidden = F.embedding(rows.ids, self.target.embedding)
        normed, kept = self.stack.run(hidden, rows.positions, attention, memories, wanted)
        if self.drafter is not None:
            features = torch.cat([kept[layer] for layer in wanted], dim=1)
            self.drafter.remember(features, rows.positions, rows.slots)
        last = normed.index_select(0, rows.last)
        rows.root.copy_(choices(F.linear(last, self.target.head.dense())))
