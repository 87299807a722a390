"""Random captured batches: trees as the device holds them, states, slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors, grow_torch
from engine.graphs.candidates import best_tokens_torch
from engine.graphs.layout import BatchState, Layout
from engine.tree import DraftTree


@dataclass
class Batch:
    """A captured batch whose first ``raw_bs`` requests are live."""

    state: BatchState
    tree: TreeTensors
    layout: Layout
    raw_bs: int

    def tree_of(self, request: int) -> DraftTree:
        """One request's tree on the host, real nodes only."""
        count = int(self.tree.counts[request])
        parts = (self.tree.parents, self.tree.tokens, self.tree.log_weights)
        return DraftTree(*(part[request, :count].cpu().numpy() for part in parts))


def moved(tree: TreeTensors, device: str) -> TreeTensors:
    """The same on a device."""
    return TreeTensors(
        *(getattr(tree, name).to(device) for name in TreeTensors.__dataclass_fields__)
    )


def random_batch(
    seed: int,
    *,
    captured: int = 3,
    raw_bs: int = 2,
    budget: int = 9,
    length: int = 4,
    vocab: int = 12,
    device: str = "cpu",
) -> Batch:
    """Prefixes of 1 … 30 tokens on scattered slots; few tokens, so that candidates may run out."""
    rng = np.random.default_rng(seed)
    drawn = torch.from_numpy(rng.normal(size=(captured * length, vocab)) * 2).float()
    log_probs, tokens = best_tokens_torch(drawn, min(budget, vocab))
    roots = torch.from_numpy(rng.integers(0, vocab, captured))
    tree = grow_torch(
        log_probs.view(captured, length, -1), tokens.view(captured, length, -1), roots, budget
    )
    q_len, longest = budget + 1, 31
    slots = 1 + captured * (longest + q_len)
    table = torch.zeros(captured + 1, longest + q_len, dtype=torch.int32)
    order = torch.from_numpy(rng.permutation(slots - 1) + 1)
    for request in range(raw_bs):
        table[request + 1] = order[request * table.shape[1] : (request + 1) * table.shape[1]]
    state = BatchState.empty(captured, torch.device(device))
    live = slice(0, raw_bs)
    state.seq_lens[live] = torch.from_numpy(rng.integers(1, longest, raw_bs)).to(device)
    state.roots[live] = roots[live].to(device)
    state.request_rows[live] = torch.arange(1, raw_bs + 1, device=device)
    state.raw_bs.fill_(raw_bs)
    return Batch(state, moved(tree, device), Layout(captured, q_len, table.to(device)), raw_bs)


def predictions(batch: Batch, seed: int, follow: float = 0.7) -> Tensor:
    """int64 [rows]: rows mostly choose one of their node's children."""
    rng = np.random.default_rng(seed)
    q_len = batch.layout.q_len
    chosen = rng.integers(0, 12, (batch.layout.captured, q_len))
    for request in range(batch.raw_bs):
        tree = batch.tree_of(request)
        for node in range(tree.num_nodes):
            children = np.flatnonzero(tree.parents == node)
            if len(children) and rng.random() < follow:
                chosen[request, node] = tree.tokens[rng.choice(children)]
    return torch.from_numpy(chosen).flatten().to(batch.state.seq_lens.device)
