"""DFLASH's way from the target's features into the drafter's cache, without the steps at which the host waits.

Its fused helper reads the largest position back to see whether the rotary table is long enough. Here the batch's
lengths, which the host knows, answer that before (:meth:`DrafterCache.reaches`), so a CUDA graph can hold the rest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.sglang.ddtree.faults import Fault
from engine.sglang.ddtree.options import Options

POOL = "MHATokenToKVPool"  # one buffer a layer and slot numbers as they are


class DrafterCache:
    """The cache of a DFLASH worker's drafter."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        ropes = [layer.self_attn.rotary_emb for layer in worker.draft_model.layers]
        self._ropes = list({id(rope): rope for rope in ropes}.values())  # mostly one for all

    @classmethod
    def of(cls, worker: Any, options: Options) -> DrafterCache | None:
        """None where only DFLASH's own way serves: a compact cache, another kind of pool, faults in what is kept."""
        pool = worker.draft_model_runner.token_to_kv_pool
        fits = (
            not worker.use_compact_draft_cache
            and type(pool).__name__ == POOL
            and options.fault not in (Fault.CROP_COMMIT, Fault.HIDDEN_ROWS)
        )
        return cls(worker) if fits else None

    @property
    def parts(self) -> tuple[Any, ...]:
        """What :meth:`write` uses and DFLASH's worker may replace: its fused helper or None, and rotary tables."""
        helper = self._worker._fused_kv_helper if self._worker._use_fused_kv_materialize else None
        return (helper, *(rope.cos_sin_cache for rope in self._ropes))

    def reaches(self, last: int) -> bool:
        """Whether the rotary tables know position ``last``."""
        return all(last < len(rope.cos_sin_cache) for rope in self._ropes)

    def write(self, features: Tensor, positions: Tensor, slots: Tensor) -> None:
        """``features`` [rows, F] projected and written; ``positions`` and ``slots`` int64 [rows]."""
        worker = self._worker
        helper = self.parts[0]
        with torch.inference_mode():
            hidden = worker.draft_model.project_target_hidden(features)
            if helper is None:
                worker._append_target_hidden_sequential(hidden, positions, slots)
            else:
                self._fused(helper, hidden, positions, slots)

    def _fused(self, helper: Any, hidden: Tensor, positions: Tensor, slots: Tensor) -> None:
        """``helper.materialize`` with the pool's ``set_kv_buffer``."""
        from sglang.srt.speculative.triton_ops.fused_kv_materialize import _fused_norm_rope

        pool = self._worker.draft_model_runner.token_to_kv_pool
        table = helper.rotary_emb.cos_sin_cache
        projected = torch.einsum("th,loh->lto", hidden, helper.batched_kv_weight)
        for index, layer in enumerate(self._worker.draft_model.layers):
            k, v = _fused_norm_rope(
                projected[index],
                helper.k_norm_weights[index],
                table,
                positions,
                helper.num_kv_heads,
                helper.head_dim,
                helper.rotary_dim,
                helper.eps_values[index],
            )
            own = layer.self_attn.attn
            pool.set_kv_buffer(own, slots, k, v, own.k_scale, own.v_scale)
