"""The double with the tap on it: batches of the worked example through both layouts and a verification."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from engine.sglang.tap import Tap
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.worked import ints


class Server:
    """The double with the tap on it."""

    def __init__(self, folder: Path, tap: Tap):
        self.folder, self.tap = folder, tap
        self.pauses = False
        arguments = SimpleNamespace(model_path="/models/tiny", tp_size=1, api_key="abc")
        self.scheduler = double.Scheduler(arguments)

    def run_eager(self, spec: Any, batch: Any, width: int = 4) -> Any:
        backend = double.TritonAttnBackend(batch.req_to_token_pool.req_to_token, width)
        backend.init_forward_metadata(forward_batch(spec, batch))
        return self.followed(verify(spec, batch), batch)

    def run_replay(self, spec: Any, batch: Any, captured: int) -> Any:
        table = batch.req_to_token_pool.req_to_token
        backend = double.TritonAttnBackend(table, 4)
        runner = double.CudaGraphRunner()
        runner.buffers = padded_buffers(batch, spec, captured)
        runner.prepare = lambda fb: replay(backend, runner.buffers, fb.spec_info, captured)
        runner.replay_prepare(forward_batch(spec, batch))
        return self.followed(verify(spec, batch), batch)

    def followed(self, result: Any, batch: Any) -> Any:
        """As at the beginning of the next verification of the same requests, unless there is none."""
        if not self.pauses and self.tap is not None:
            self.tap.make(batch)
        return result

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "health.rank0.json").read_text())
        return found


def forward_batch(spec: Any, batch: Any) -> Any:
    return SimpleNamespace(
        forward_mode=batch.forward_mode,
        spec_info=spec,
        seq_lens=batch.seq_lens,
        seq_lens_cpu=batch.seq_lens_cpu,
        req_pool_indices=batch.req_pool_indices,
        batch_size=len(batch.seq_lens),
        rids=[req.rid for req in batch.reqs],
    )


def verify(spec: Any, batch: Any) -> Any:
    logits = SimpleNamespace(next_token_logits=worked.logits_for(worked.PREDICTIONS))
    if type(spec) is double.NgramVerifyInput:
        return spec.verify(batch, logits, 1)
    return spec.verify(batch, logits, None, 1)


def padded_buffers(batch: Any, spec: Any, captured: int) -> Any:
    missing = captured - len(batch.seq_lens)
    fill = torch.ones(missing, dtype=torch.int64)
    rows = torch.zeros(missing * 4, dtype=torch.int64)
    return SimpleNamespace(
        input_ids=torch.cat([spec.draft_token, rows]),
        positions=torch.cat([spec.positions, rows]),
        out_cache_loc=torch.cat([batch.out_cache_loc, rows]),
        seq_lens=torch.cat([batch.seq_lens, fill]),
        req_pool_indices=torch.cat([batch.req_pool_indices, torch.zeros_like(fill)]),
    )


def replay(backend: Any, buffers: Any, spec: Any, captured: int) -> None:
    lens = buffers.seq_lens
    backend.init_forward_metadata_replay_cuda_graph(
        captured,
        buffers.req_pool_indices,
        lens,
        int(lens.sum()),
        None,
        double.Mode("verify"),
        spec,
        seq_lens_cpu=lens.clone(),
    )


def eagle_tree() -> None:
    """Top-k 2: candidates 0 and 1 below the root, 2 … below candidate 1."""
    import sglang.srt.speculative.eagle_utils as utils

    parents = ints(-1, 1, 0)[None]
    utils.build_tree_kernel_efficient(
        bonus_tokens=ints(5),
        parent_list=parents,
        top_scores_index=ints(0, 1, 2)[None],
        draft_tokens=ints(9, 12, 30)[None],
        topk=2,
    )
