"""Verify metadata as SGLang's Triton backend lays it out, made the way an engine makes it: vectorised, from buffers.

The builders here share no code with ``engine.oracle``, which judges them. Names, dtypes and units are SGLang's:
``qo_indptr`` and ``kv_indptr`` count rows and prefix tokens (tree tokens excluded), ``mask_indptr`` counts cells of the
flat ``custom_mask``, whose rows hold the prefix columns and then one column a draft row.

What is made from one tree is made on the host; what a forward reads lies on the model's device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.models.device import HOST, to_device
from engine.tree import DraftTree

PADDING_TOKEN = 0


@dataclass(frozen=True, eq=False)
class VerifyRequest:
    """One live request about to be verified."""

    rid: str
    tree: DraftTree
    prefix_len: int
    req_pool_idx: int  # row of req_to_token


@dataclass(frozen=True, eq=False)
class AttentionMetadata:
    """What the attention backend is told about a batch, all on the model's device."""

    qo_indptr: Tensor  # int64 [bs + 1], first row of each request
    kv_indptr: Tensor  # int32 [bs + 1], first entry of kv_indices
    kv_indices: Tensor  # int64 [kv_indptr[-1]], slots of the committed tokens
    mask_indptr: Tensor  # int64 [bs + 1], first cell of each request
    custom_mask: Tensor  # uint8 [cells], 1 = visible
    max_extend_len: int

    def to(self, device: torch.device) -> AttentionMetadata:
        """The same on ``device``; what lies there already is not copied."""
        return AttentionMetadata(
            to_device(self.qo_indptr, device),
            to_device(self.kv_indptr, device),
            to_device(self.kv_indices, device),
            to_device(self.mask_indptr, device),
            to_device(self.custom_mask, device),
            self.max_extend_len,
        )


@dataclass(frozen=True, eq=False)
class VerifyInputs:
    """The rows of one verify step and the metadata of their attention, all on the model's device."""

    input_ids: Tensor  # int64 [rows]
    positions: Tensor  # int64 [rows]
    seq_lens: Tensor  # int64 [bs], prefix lengths
    out_cache_loc: Tensor  # int64 [rows]
    attention: AttentionMetadata

    def to(self, device: torch.device) -> VerifyInputs:
        """The same on ``device``; what lies there already is not copied."""
        return VerifyInputs(
            to_device(self.input_ids, device),
            to_device(self.positions, device),
            to_device(self.seq_lens, device),
            to_device(self.out_cache_loc, device),
            self.attention.to(device),
        )


@dataclass(frozen=True, eq=False)
class Links:
    """First child and next sibling of each row by node number, -1 for none; on the host."""

    retrieve_next_token: Tensor  # int64 [bs, q_len]
    retrieve_next_sibling: Tensor  # int64 [bs, q_len]


def build_attention_metadata(
    prefix_lens: Tensor, kv_indices: Tensor, custom_mask: Tensor, width: int
) -> AttentionMetadata:
    """Offsets for ``width`` rows a request.

    ``prefix_lens``: int64 [bs]. Example: prefix lengths [5, 7] and width 4 give qo_indptr [0, 4, 8], kv_indptr
    [0, 5, 12] and mask_indptr [0, 36, 80].
    """
    bs = len(prefix_lens)
    zero = prefix_lens.new_zeros(1)
    qo_indptr = torch.arange(0, (bs + 1) * width, width, device=prefix_lens.device)
    kv_indptr = torch.cat([zero, prefix_lens.cumsum(0)]).to(torch.int32)
    mask_indptr = torch.cat([zero, (width * (prefix_lens + width)).cumsum(0)])
    return AttentionMetadata(qo_indptr, kv_indptr, kv_indices, mask_indptr, custom_mask, width)


def tree_mask(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
    """Visibility of one request, bool [q_len, prefix_len + q_len] on the host.

    A node sees what its parent sees, and itself; parents come first, so one pass is enough. Padding rows see the prefix
    and themselves (a row that sees nothing would be NaN), and no real row sees them.
    """
    mask = np.ones((q_len, prefix_len + q_len), dtype=np.bool_)
    block = mask[:, prefix_len:]
    block[:] = np.eye(q_len, dtype=np.bool_)
    for node, parent in enumerate(tree.parents.tolist()[1:], start=1):
        block[node] |= block[parent]
    return torch.from_numpy(mask)


def tree_positions(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
    """Prefix length + depth of each node, int64 [q_len] on the host; padding rows stand at the root's position."""
    depths = [0] * q_len
    for node, parent in enumerate(tree.parents.tolist()[1:], start=1):
        depths[node] = depths[parent] + 1
    return torch.tensor(depths, device=HOST) + prefix_len


def tree_tokens(tree: DraftTree, q_len: int) -> Tensor:
    """Tokens of each row, int64 [q_len] on the host; padding rows hold token 0."""
    rows = torch.full((q_len,), PADDING_TOKEN, dtype=torch.int64, device=HOST)
    rows[: tree.num_nodes] = torch.from_numpy(tree.tokens)
    return rows


def build_links(trees: Sequence[DraftTree], q_len: int) -> Links:
    """Links of a batch; nodes are linked in reverse so that each parent's first child comes last and wins."""
    next_token = [[-1] * q_len for _ in trees]
    next_sibling = [[-1] * q_len for _ in trees]
    for children, siblings, tree in zip(next_token, next_sibling, trees, strict=True):
        parents = tree.parents.tolist()
        for node in range(tree.num_nodes - 1, 0, -1):
            siblings[node] = children[parents[node]]
            children[parents[node]] = node
    return Links(
        torch.tensor(next_token, dtype=torch.int64, device=HOST),
        torch.tensor(next_sibling, dtype=torch.int64, device=HOST),
    )


def gather_kv_indices(req_to_token: Tensor, requests: Sequence[VerifyRequest]) -> Tensor:
    """Slots of every committed token, request after request, int64 [sum of prefix lengths] beside ``req_to_token``."""
    lines = [req_to_token[r.req_pool_idx, : r.prefix_len] for r in requests]
    return torch.cat([req_to_token.new_empty(0), *lines]).long()
