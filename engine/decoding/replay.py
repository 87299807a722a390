"""CUDA-graph semantics without a graph: fixed buffers for a captured batch, refreshed in place before each replay.

What makes graph faults possible is kept: buffers outlive the step, a replay covers ``captured_bs`` requests although
only ``raw_bs`` are live, and whatever is not written again still holds the values of the replay before. Padded
requests get SGLang's fill values: sequence length 1, position 0, token 0, the padding slot. Their mask cells are
never written.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from engine.decoding.metadata import AttentionMetadata, VerifyInputs
from engine.decoding.stages import Stages
from engine.models.device import HOST
from engine.models.kv_pool import PADDING_SLOT

PADDED_SEQ_LEN = 1


class ReplayBuffers:
    """Persistent buffers of one captured batch size on one device."""

    def __init__(
        self, captured_bs: int, q_len: int, max_context: int, device: torch.device = HOST
    ) -> None:
        rows = captured_bs * q_len
        self.captured_bs, self.q_len, self.max_context = captured_bs, q_len, max_context
        ints, cells = partial(torch.full, device=device, dtype=torch.int64), q_len + max_context
        self.input_ids, self.positions = ints((rows,), 0), ints((rows,), 0)
        self.seq_lens = ints((captured_bs,), PADDED_SEQ_LEN)
        self.out_cache_loc = ints((rows,), PADDING_SLOT)
        self.qo_indptr, self.mask_indptr = ints((captured_bs + 1,), 0), ints((captured_bs + 1,), 0)
        self.kv_indptr = ints((captured_bs + 1,), 0).to(torch.int32)
        self.kv_indices = ints((captured_bs * max_context,), 0)
        self.custom_mask = torch.ones(rows * cells, dtype=torch.uint8, device=device)

    @property
    def mask_capacity(self) -> int:
        """Cells of the persistent mask."""
        return len(self.custom_mask)

    def refresh(self, raw: VerifyInputs, width: int, stages: Stages) -> VerifyInputs:
        """Copy a live batch in and return the captured one: views of the buffers, valid until the next refresh."""
        self._fill(self.input_ids, raw.input_ids, 0)
        self._fill(self.positions, raw.positions, 0)
        self._fill(self.out_cache_loc, raw.out_cache_loc, PADDING_SLOT)
        self._fill(self.seq_lens, raw.seq_lens, PADDED_SEQ_LEN)
        self._offsets(width)
        live = raw.attention.kv_indices
        padding = live.new_full((self.captured_bs - len(raw.seq_lens),), PADDING_SLOT)
        kv_indices = torch.cat([live, padding])
        self.kv_indices[: len(kv_indices)] = kv_indices
        stages.refresh_mask(self.custom_mask, raw.attention.custom_mask)
        return self._captured(len(kv_indices), width)

    def _fill(self, buffer: Tensor, live: Tensor, padding: int) -> None:
        buffer[: len(live)] = live
        buffer[len(live) :] = padding

    def _offsets(self, width: int) -> None:
        self.qo_indptr[:] = torch.arange(
            0, (self.captured_bs + 1) * width, width, device=self.qo_indptr.device
        )
        self.kv_indptr[1:] = self.seq_lens.cumsum(0)
        self.mask_indptr[1:] = (width * (self.seq_lens + width)).cumsum(0)

    def _captured(self, kv_len: int, width: int) -> VerifyInputs:
        metadata = AttentionMetadata(
            self.qo_indptr,
            self.kv_indptr,
            self.kv_indices[:kv_len],
            self.mask_indptr,
            self.custom_mask,
            width,
        )
        return VerifyInputs(
            self.input_ids, self.positions, self.seq_lens, self.out_cache_loc, metadata
        )
