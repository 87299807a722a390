"""A world small enough to know everything in, around SGLang's own DFLASH worker, Triton backend and allocator.

The target "model" chooses the next token from the set of (position, token) pairs that a row attends to, read from the
slots that the request table names and from the tree columns at the addresses that the backend's metadata gives. So each
wrong mask, width, position, slot or table entry changes its answer. A row's features are its token and position; the
drafter's KV rows hold what it was told and for which position, and the drafter drafts from what lies there.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.sglang.ddtree.drafter import Drafter, MHATokenToKVPool
from tests.sglang.ddtree.scheduled import Args, Batch, Req
from tests.sglang.ddtree.target import Runner, Target
from tests.sglang.ddtree.truth import CONTEXT, REQUESTS, SLOTS, VOCAB, Pairs


class World:
    """Pools, workers, and the scheduler's part of a decode loop."""

    captured = (1, 2, 4)  # batch sizes of the target's graphs
    tp_group: Any = SimpleNamespace(world_size=1, broadcast_object=lambda told, src: told)

    def __init__(self, block_size: int, seed: int = 0, help: float = 2.0) -> None:
        from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator

        self.block_size, self.help, self.rng = block_size, help, np.random.default_rng(seed)
        table = torch.zeros(REQUESTS, CONTEXT, dtype=torch.int32)
        self.table = SimpleNamespace(req_to_token=table, size=REQUESTS)
        self.allocator = TokenToKVPoolAllocator(SLOTS, torch.float32, "cpu", None, False)
        self.tree_cache = SimpleNamespace(
            token_to_kv_pool_allocator=self.allocator, is_chunk_cache=lambda: True
        )
        self.tokens, self.places = (torch.full((SLOTS + 1,), -1) for _ in range(2))
        self.draft_pool = MHATokenToKVPool()
        self.batch: Batch | None = None
        self.wrong_slots = self.wrong_contexts = 0

    def runner(self, args: Args, draft: bool) -> Runner:
        from sglang.srt.layers.attention import triton_backend

        triton_backend.get_attention_tp_size = lambda: 1  # type: ignore[attr-defined]
        config = SimpleNamespace(
            attention_arch="MHA", num_attention_heads=1, get_num_kv_heads=lambda tp: 1,
            v_head_dim=8, swa_v_head_dim=8, context_len=CONTEXT - 40, is_encoder_decoder=False,
            vocab_size=VOCAB,
        )  # fmt: skip
        runner = Runner(
            req_to_token_pool=self.table, token_to_kv_pool_allocator=self.allocator,
            sliding_window_size=None, server_args=args, model_config=config, device="cpu",
            hybrid_gdn_config=None, kimi_linear_config=None, linear_attn_model_spec=None,
            token_to_kv_pool=SimpleNamespace(get_value_buffer=lambda layer: torch.zeros(1, 1, 8)),
            gpu_id=0, is_draft_worker=draft, model_is_mrope=False, memory_pool_config=None,
            graph_runner=SimpleNamespace(capture_bs=list(self.captured)),
        )  # fmt: skip
        runner.attn_backend = triton_backend.TritonAttnBackend(runner)
        return runner

    def write(self, slots: torch.Tensor, tokens: torch.Tensor, places: torch.Tensor) -> None:
        self.tokens[slots], self.places[slots] = tokens, places

    def read(self, slots: torch.Tensor) -> Pairs:
        return list(zip(self.places[slots].tolist(), self.tokens[slots].tolist(), strict=True))

    def note_context(self, i: int, told: list[list[int]], keyed: list[list[int]]) -> None:
        """Compare the drafter's KV rows with the committed tokens."""
        assert self.batch is not None
        req = self.batch.reqs[i]
        committed = [*req.origin_input_ids, *req.output_ids][: len(told)]
        expected = [[token, place] for place, token in enumerate(committed)]
        self.wrong_contexts += told != expected or keyed != expected

    def start(self, args: Args, graph: bool = False) -> Any:
        """The worker, made the way SGLang's scheduler makes it."""
        from sglang.srt.speculative import dflash_worker
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        self.target = Target(self, args)
        self.target.graph = graph

        def draft_worker(server_args: Args, **rest: Any) -> Drafter:
            self.drafter = Drafter(self, server_args)
            return self.drafter

        dflash_worker.TpModelWorker = draft_worker
        distributed = importlib.import_module("sglang.srt.distributed")
        distributed.get_tp_group = lambda: self.tp_group  # type: ignore[attr-defined]
        kind = SpeculativeAlgorithm.from_string(args.speculative_algorithm).create_worker(args)
        self.worker = kind(
            server_args=args, gpu_id=0, tp_rank=0, moe_ep_rank=0, nccl_port=0,
            target_worker=self.target, dp_rank=None, attn_cp_rank=0, moe_dp_rank=0,
        )  # fmt: skip
        if graph:
            self._capture(args.speculative_num_draft_tokens or 0)
        return self.worker

    def _capture(self, width: int) -> None:
        """What the graph runner does for one batch size: whether a mask is read is decided now."""
        from sglang.srt.model_executor.forward_batch_info import ForwardMode
        from sglang.srt.speculative.dflash_info import DFlashVerifyInput
        from sglang.srt.speculative.dflash_utils import resolve_dflash_verify_mask_policy

        backend = self.target.model_runner.attn_backend
        backend.init_cuda_graph_state(REQUESTS, REQUESTS * width)
        _, masked = resolve_dflash_verify_mask_policy(backend)
        dummy = torch.ones(REQUESTS * width * (1 + width), dtype=torch.bool)
        spec_info = DFlashVerifyInput(None, None, width, custom_mask=dummy if masked else None)
        places, lens = torch.zeros(REQUESTS, dtype=torch.int64), torch.ones(REQUESTS).long()
        backend.init_forward_metadata_capture_cuda_graph(
            REQUESTS, REQUESTS * width, places, lens, None, ForwardMode.TARGET_VERIFY, spec_info
        )
        assert backend.forward_metadata.custom_mask is not None

    def prefill(self, reqs: list[Req]) -> None:
        """The extend step of requests at once; they then join those that are being decoded."""
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        running = self.batch
        taken = set() if running is None else set(running.req_pool_indices.tolist())
        free = [index for index in range(REQUESTS) if index not in taken][: len(reqs)]
        lengths = torch.tensor([len(r.origin_input_ids) for r in reqs])
        self.batch = batch = Batch(
            reqs, ForwardMode.EXTEND, torch.tensor(free), lengths, self.table, self.allocator,
            self.tree_cache,
        )  # fmt: skip
        result = self.worker.forward_batch_generation(batch)
        for req, token in zip(reqs, result.next_token_ids.tolist(), strict=True):
            req.output_ids.append(token)
            req.check_finished()
        batch.forward_mode = ForwardMode.DECODE
        self._retire()
        if running is not None and self.batch is not None:
            self.batch.merge(running)
        self.batch = self.batch or running

    def step(self) -> Any:
        """One decode step, and what the scheduler does after it."""
        result = self.worker.forward_batch_generation(self.batch)
        self._retire()
        return result

    def _retire(self) -> None:
        """Look at what lies in the cache; finished requests give back their committed slots."""
        assert self.batch is not None
        for req, index in zip(self.batch.reqs, self.batch.req_pool_indices.tolist(), strict=True):
            slots = self.table.req_to_token[index, : req.kv_committed_len].long()
            self._note_slots(req, slots)
            if req.finished():
                self.allocator.free(slots)
        places = [i for i, req in enumerate(self.batch.reqs) if not req.finished()]
        if places and len(places) < len(self.batch.reqs):
            self.batch.keep(places)
        elif not places:
            self.batch = None

    def _note_slots(self, req: Req, slots: torch.Tensor) -> None:
        """A radix cache may hand these slots to another request now: both models' rows must be right."""
        committed = [*req.origin_input_ids, *req.output_ids][:-1]
        pairs = list(enumerate(committed))
        drafted = [(place, token) for token, place in self.draft_pool.v[slots].long().tolist()]
        keyed = self.draft_pool.k[slots][:, 1].long().tolist()
        self.wrong_slots += self.read(slots) != pairs
        self.wrong_contexts += drafted != pairs or keyed != list(range(len(committed)))

    @property
    def clean(self) -> bool:
        """Whether all slots are free once, and no row of either cache was ever wrong."""
        free = self.allocator.free_pages.tolist()
        return sorted(free) == list(range(1, SLOTS + 1)) and not (
            self.wrong_slots or self.wrong_contexts
        )

    def run(self, reqs: list[Req], limit: int = 200) -> int:
        """Serve to the end; the number of decode steps."""
        self.prefill(reqs)
        for count in range(limit):
            if self.batch is None:
                return count
            self.step()
        raise AssertionError(f"not finished after {limit} steps")
