"""Rows, offsets, slots and mask of a captured batch, written into persistent buffers on the device.

The names are SGLang's and the layout is that of :mod:`engine.decoding.metadata`, which makes it on the host: both must
agree cell by cell. Padded requests (from ``raw_bs`` on) have sequence length 1, token 0, position 0 and the padding
slot.

Covered: full masks, a byte a cell; batches of different lengths. Not covered: packed bits, query-only masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.decoding.metadata import AttentionMetadata, VerifyInputs

try:
    import triton
except ImportError:  # Triton has no build for this platform; the twins serve
    triton = None
else:
    from engine.graphs import layout_kernel as kernels

PADDED_SEQ_LEN = 1
PREFIX_BLOCK, MASK_BLOCK = 1024, 1024  # tokens, cells of one program at a time


@dataclass(frozen=True, eq=False)
class BatchState:
    """Where each request of a captured batch stands; written by the host when requests come and go."""

    seq_lens: Tensor  # int64 [captured], committed tokens
    roots: Tensor  # int64 [captured]
    request_rows: Tensor  # int64 [captured], rows of req_to_token
    raw_bs: Tensor  # int64 [1], live requests

    @classmethod
    def empty(cls, captured: int, device: torch.device) -> BatchState:
        """All requests padded."""
        ints = partial(torch.zeros, dtype=torch.int64, device=device)
        return cls(ints(captured).fill_(PADDED_SEQ_LEN), ints(captured), ints(captured), ints(1))


class Layout:
    """Persistent buffers of one captured batch size; every step writes them in place."""

    def __init__(self, captured: int, q_len: int, req_to_token: Tensor) -> None:
        """``req_to_token`` int32 [requests, tokens that one may commit + q_len]; its row 0 holds the padding slot."""
        self.captured, self.q_len, self.req_to_token = captured, q_len, req_to_token
        device, rows = req_to_token.device, captured * q_len
        ints = partial(torch.zeros, dtype=torch.int64, device=device)
        width = req_to_token.shape[1]
        self.input_ids, self.positions, self.out_cache_loc = ints(rows), ints(rows), ints(rows)
        self.qo_indptr = torch.arange(0, rows + 1, q_len, device=device)
        self.kv_indptr = ints(captured + 1).to(torch.int32)
        self.mask_indptr = ints(captured + 1)
        self.kv_indices = ints(captured * width)
        self.custom_mask = torch.ones(rows * width, dtype=torch.uint8, device=device)

    def inputs(self, state: BatchState) -> VerifyInputs:
        """The buffers as the forward reads them: views, valid until the next step."""
        metadata = AttentionMetadata(
            self.qo_indptr,
            self.kv_indptr,
            self.kv_indices,
            self.mask_indptr,
            self.custom_mask,
            self.q_len,
        )
        return VerifyInputs(
            self.input_ids, self.positions, state.seq_lens, self.out_cache_loc, metadata
        )

    def prefixes(self, state: BatchState) -> None:
        """Write ``kv_indptr``, ``mask_indptr`` and ``kv_indices`` from the prefix lengths."""
        on_gpu = self.kv_indices.is_cuda and triton is not None
        (self.prefixes_triton if on_gpu else self.prefixes_torch)(state)

    def rows(self, state: BatchState, tree: TreeTensors) -> None:
        """Write ``input_ids``, ``positions``, ``out_cache_loc`` and ``custom_mask``; trees of ``q_len`` nodes."""
        on_gpu = self.kv_indices.is_cuda and triton is not None
        (self.rows_triton if on_gpu else self.rows_torch)(state, tree)

    def prefixes_triton(self, state: BatchState) -> None:
        """:meth:`prefixes` by the kernel."""
        width = self.req_to_token.shape[1]
        kernels.lay_out_prefixes[(self.captured, triton.cdiv(width, PREFIX_BLOCK))](
            state.seq_lens,
            state.request_rows,
            self.req_to_token,
            self.kv_indptr,
            self.mask_indptr,
            self.kv_indices,
            self.captured,
            width,
            Q_LEN=self.q_len,
            REQUESTS=triton.next_power_of_2(self.captured),
            BLOCK=PREFIX_BLOCK,
            num_warps=4,
        )

    def rows_triton(self, state: BatchState, tree: TreeTensors) -> None:
        """:meth:`rows` by the kernel."""
        kernels.lay_out_rows[(self.captured, self.q_len)](
            tree.tokens,
            tree.depths,
            tree.visible,
            state.seq_lens,
            state.request_rows,
            self.req_to_token,
            self.mask_indptr,
            state.raw_bs,
            self.input_ids,
            self.positions,
            self.out_cache_loc,
            self.custom_mask,
            self.req_to_token.shape[1],
            Q_LEN=self.q_len,
            BLOCK=MASK_BLOCK,
            num_warps=4,
        )

    def prefixes_torch(self, state: BatchState) -> None:
        """:meth:`prefixes` in plain torch; waits for the lengths."""
        lens, q_len = state.seq_lens, self.q_len
        self.kv_indptr[1:] = lens.cumsum(0)
        self.mask_indptr[1:] = (q_len * (lens + q_len)).cumsum(0)
        lines = zip(state.request_rows.tolist(), lens.tolist(), strict=True)
        slots = torch.cat([self.req_to_token[row, :length] for row, length in lines])
        self.kv_indices[: len(slots)] = slots

    def rows_torch(self, state: BatchState, tree: TreeTensors) -> None:
        """:meth:`rows` in plain torch; waits for the lengths."""
        q_len, live = self.q_len, int(state.raw_bs)
        for request, length in enumerate(state.seq_lens.tolist()):
            own = slice(request * q_len, (request + 1) * q_len)
            line = self.req_to_token[state.request_rows[request]]
            alive = int(request < live)
            self.input_ids[own] = tree.tokens[request] * alive
            self.positions[own] = (length + tree.depths[request]) * alive
            self.out_cache_loc[own] = line[length : length + q_len].long() * alive
            start = int(self.mask_indptr[request])
            cells = self.custom_mask[start : start + q_len * (length + q_len)].view(q_len, -1)
            cells[:, :length] = 1
            cells[:, length:] = tree.visible[request]
