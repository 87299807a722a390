"""Verify metadata as SGLang's Triton backend lays it out, made the way an engine makes it: vectorised, from buffers.

The builders here share no code with ``engine.oracle``, which judges them. Names, dtypes and units are SGLang's:
``qo_indptr`` and ``kv_indptr`` count rows and prefix tokens (tree tokens excluded), ``mask_indptr`` counts cells of the
flat ``custom_mask``, whose rows hold the prefix columns and then one column a draft row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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


@dataclass(frozen=True, eq=False)
class VerifyInputs:
    """The rows of one verify step and the metadata of their attention."""

    input_ids: Tensor  # int64 [rows]
    positions: Tensor  # int64 [rows]
    seq_lens: Tensor  # int64 [bs], prefix lengths
    out_cache_loc: Tensor  # int64 [rows]
    attention: AttentionMetadata


@dataclass(frozen=True, eq=False)
class Links:
    """First child and next sibling of each row by node number, -1 for none."""

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
    """Visibility of one request, bool [q_len, prefix_len + q_len].

    A node sees what its parent sees, and itself; parents come first, so one pass is enough. Padding rows see the prefix
    and themselves (a row that sees nothing would be NaN), and no real row sees them.
    """
    block = torch.eye(q_len, dtype=torch.bool)
    for node, parent in enumerate(tree.parents.tolist()[1:], start=1):
        block[node] |= block[parent]
    return torch.cat([torch.ones(q_len, prefix_len, dtype=torch.bool), block], dim=1)


def tree_positions(tree: DraftTree, prefix_len: int, q_len: int) -> Tensor:
    """Prefix length + depth of each node, int64 [q_len]; padding rows stand at the root's position."""
    depths = [0] * q_len
    for node, parent in enumerate(tree.parents.tolist()[1:], start=1):
        depths[node] = depths[parent] + 1
    return torch.tensor(depths) + prefix_len


def tree_tokens(tree: DraftTree, q_len: int) -> Tensor:
    """Tokens of each row, int64 [q_len]; padding rows hold token 0."""
    rows = torch.full((q_len,), PADDING_TOKEN, dtype=torch.int64)
    rows[: tree.num_nodes] = torch.from_numpy(tree.tokens)
    return rows


def build_links(trees: Sequence[DraftTree], q_len: int) -> Links:
    """Links of a batch; nodes are linked in reverse so that each parent's first child comes last and wins."""
    next_token = torch.full((len(trees), q_len), -1, dtype=torch.int64)
    next_sibling = torch.full((len(trees), q_len), -1, dtype=torch.int64)
    for i, tree in enumerate(trees):
        parents = tree.parents.tolist()
        for node in range(tree.num_nodes - 1, 0, -1):
            next_sibling[i, node] = next_token[i, parents[node]]
            next_token[i, parents[node]] = node
    return Links(next_token, next_sibling)


def gather_kv_indices(req_to_token: Tensor, requests: Sequence[VerifyRequest]) -> Tensor:
    """Slots of every committed token, request after request, int64 [sum of prefix lengths]."""
    lines = [req_to_token[r.req_pool_idx, : r.prefix_len] for r in requests]
    return torch.cat(lines).long() if lines else torch.empty(0, dtype=torch.int64)
