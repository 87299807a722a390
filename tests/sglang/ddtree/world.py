"""A world small enough to know everything in, around SGLang's own DFLASH worker, Triton backend and allocator.

The target "model" chooses the next token from the set of (position, token) pairs that a row attends to, read from the
slots that the request table names and from the tree columns at the addresses that the backend's metadata gives. So each
wrong mask, width, position, slot or table entry changes its answer. A row's features are its token and position; the
drafter's KV rows hold what it was told and for which position, and the drafter drafts from what lies there.
"""

from __future__ import annotations

import importlib
import math
import zlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

VOCAB, CONTEXT, SLOTS, REQUESTS = 24, 160, 700, 6
MASK_TOKEN = VOCAB - 1
Pairs = list[tuple[int, int]]  # (position, token)


def truth(seen: Pairs) -> int:
    """The target's choice behind what it sees; never the mask token."""
    return zlib.crc32(repr(sorted(seen)).encode()) % (VOCAB - 1)


SPREAD = ((0, 0.5), (1, 0.3), (5, 0.2))  # tokens after the true one, and how probable they are


def spread(seen: Pairs) -> dict[int, float]:
    """The target's distribution behind what it sees, where it is sampled."""
    first = truth(seen)
    return {(first + step) % (VOCAB - 1): chance for step, chance in SPREAD}


def plain(prompt: list[int], count: int, stop: int | None = None) -> list[int]:
    """What the target says token by token."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        tokens.append(truth(list(enumerate(tokens))))
        if tokens[-1] == stop:
            break
    return tokens[len(prompt) :]


class Args:
    """ServerArgs as far as they are read."""

    def __init__(self, **given: Any) -> None:
        self.speculative_algorithm = "DDTREE"
        self.speculative_draft_model_path, self.speculative_draft_model_revision = "drafter", None
        self.speculative_num_draft_tokens: int | None = None
        self.speculative_dflash_block_size: int | None = None
        self.speculative_num_steps: int | None = None
        self.speculative_eagle_topk: int | None = None
        self.speculative_draft_window_size: int | None = None
        self.speculative_draft_attention_backend = None
        self.speculative_accept_threshold_single = self.speculative_accept_threshold_acc = 1.0
        self.speculative_skip_dp_mlp_sync = self.speculative_adaptive = False
        self.attention_backend, self.prefill_attention_backend = "triton", None
        self.decode_attention_backend = None
        self.pp_size = self.page_size = 1
        self.enable_dp_attention = self.enable_two_batch_overlap = self.enable_pdmux = False
        self.enable_deterministic_inference = self.enable_hierarchical_cache = False
        self.enable_lora: bool | None = None
        self.disaggregation_mode = "null"
        self.max_running_requests: int | None = None
        self.disable_overlap_schedule, self.enable_mixed_chunk = False, True
        self.triton_attention_num_kv_splits, self.triton_attention_split_tile_size = 8, None
        self.disable_cuda_graph, self.chunked_prefill_size = False, 4096
        self.__dict__.update(given)

    def get_attention_backends(self) -> tuple[str, str]:
        return (
            self.prefill_attention_backend or self.attention_backend,
            self.decode_attention_backend or self.attention_backend,
        )


class Req:
    """One request."""

    def __init__(self, prompt: list[int], limit: int, stop: int | None = None) -> None:
        self.rid, self.eos_token_ids = "-".join(map(str, prompt)), {-1 if stop is None else stop}
        self.origin_input_ids, self.output_ids = prompt, list[int]()
        self.limit, self.stop, self.to_finish = limit, stop, False
        self.finished_reason: str | None = None
        self.grammar, self.require_reasoning = None, False
        self.kv_committed_len = self.kv_allocated_len = len(prompt)
        self.spec_verify_ct = self.spec_num_correct_drafts = 0
        self.histogram: list[int] = []

    def check_finished(self) -> None:
        if self.finished():
            return
        if self.to_finish:
            self.finished_reason = "abort"
        elif len(self.output_ids) >= self.limit:
            self.finished_reason = "length"
        elif self.output_ids[-1] == self.stop:
            self.finished_reason = "stop"

    def finished(self) -> bool:
        return self.finished_reason is not None

    def update_spec_correct_drafts_histogram(self, count: int) -> None:
        self.histogram.append(count)


@dataclass
class Batch:
    """ScheduleBatch as far as it is read."""

    reqs: list[Req]
    forward_mode: Any
    req_pool_indices: torch.Tensor
    seq_lens: torch.Tensor
    req_to_token_pool: Any
    token_to_kv_pool_allocator: Any
    tree_cache: Any
    seq_lens_cpu: torch.Tensor = field(init=False)
    seq_lens_sum: int = field(init=False)
    sampling_info: Any = field(
        default_factory=lambda: SimpleNamespace(is_all_greedy=True, logit_bias=None)
    )
    spec_info: Any = None
    out_cache_loc: Any = None
    input_ids: Any = None
    is_extend_in_batch: bool = False
    has_grammar: bool = False
    return_logprob: bool = False
    return_hidden_states: bool = False
    mamba_track_indices: Any = None
    device: str = "cpu"
    model_config: Any = field(default_factory=lambda: SimpleNamespace(think_end_id=None))

    def __post_init__(self) -> None:
        self.seq_lens_cpu = self.seq_lens.clone()
        self.seq_lens_sum = int(self.seq_lens.sum())

    def batch_size(self) -> int:
        return len(self.reqs)

    def get_model_worker_batch(self) -> SimpleNamespace:
        lengths = [len(r.origin_input_ids) for r in self.reqs]
        view = SimpleNamespace(**vars(self))
        view.extend_seq_lens, view.extend_prefix_lens = lengths, [0] * len(self.reqs)
        return view

    def merge(self, other: Batch) -> None:
        """merge_batch: ``other`` joins at the end."""
        self.reqs = [*self.reqs, *other.reqs]
        self.req_pool_indices = torch.cat([self.req_pool_indices, other.req_pool_indices])
        self.seq_lens = torch.cat([self.seq_lens, other.seq_lens])
        self.seq_lens_cpu = torch.cat([self.seq_lens_cpu, other.seq_lens_cpu])
        self.seq_lens_sum += other.seq_lens_sum
        self.out_cache_loc = None
        self.spec_info.merge_batch(other.spec_info)

    def keep(self, places: list[int]) -> None:
        """filter_batch."""
        at = torch.tensor(places)
        self.reqs = [self.reqs[i] for i in places]
        self.req_pool_indices, self.seq_lens = self.req_pool_indices[at], self.seq_lens[at]
        self.seq_lens_cpu, self.seq_lens_sum = self.seq_lens_cpu[at], int(self.seq_lens.sum())
        self.out_cache_loc = None
        self.spec_info.filter_batch(new_indices=at, has_been_filtered=False)


class Runner(SimpleNamespace):
    """ModelRunner as far as it is read."""


class Target:
    """TpModelWorker of the target."""

    def __init__(self, world: World, args: Args) -> None:
        self.world, self.device, self.tokenizer = world, "cpu", None
        head = SimpleNamespace(
            weight=torch.eye(VOCAB),
            shard_indices=SimpleNamespace(
                num_org_elements=VOCAB,
                num_org_elements_padded=VOCAB,
                num_added_elements=0,
                org_vocab_start_index=0,
                added_vocab_start_index=VOCAB,
            ),
        )
        self.model_runner = world.runner(args, draft=False)
        self.model_runner.model = SimpleNamespace(
            lm_head=head, get_input_embeddings=lambda: lambda ids: torch.zeros(*ids.shape, 4)
        )
        self.graph = self.sampled = False

    def get_memory_pool(self) -> tuple[Any, Any]:
        return self.world.table, self.world.allocator

    def forward_batch_generation(self, batch: Any, is_verify: bool = False) -> SimpleNamespace:
        if not is_verify:
            return self._prefill(batch)
        logits, hidden = self._verify(batch)
        out = SimpleNamespace(next_token_logits=logits, hidden_states=hidden)
        return SimpleNamespace(logits_output=out, can_run_cuda_graph=self.graph)

    def _prefill(self, batch: Any) -> SimpleNamespace:
        rows, nexts = [], []
        for index, req in zip(batch.req_pool_indices.tolist(), batch.reqs, strict=True):
            prompt = req.origin_input_ids
            slots = self.world.allocator.alloc(len(prompt))
            self.world.table.req_to_token[index, : len(prompt)] = slots.int()
            self.world.write(slots, torch.tensor(prompt), torch.arange(len(prompt)))
            rows += [[token, place] for place, token in enumerate(prompt)]
            nexts.append(truth(list(enumerate(prompt))))
        out = SimpleNamespace(hidden_states=torch.tensor(rows).float(), next_token_logits=None)
        return SimpleNamespace(
            logits_output=out, next_token_ids=torch.tensor(nexts), can_run_cuda_graph=False
        )

    def _verify(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        ids, places = batch.input_ids, batch.spec_info.positions
        self.world.write(batch.out_cache_loc, ids, places)
        laid = self._laid(batch)
        logits = torch.zeros(len(ids), VOCAB)
        for row, seen in enumerate(self._seen(laid, ids, places)):
            if self.sampled and seen is not None:
                logits[row] = -torch.inf
                for token, chance in spread(seen).items():
                    logits[row, token] = math.log(chance)
            else:
                logits[row, truth(seen) if seen is not None else 0] = 10.0
        return logits, torch.stack([ids, places], dim=1).float()

    def _laid(self, batch: Any) -> SimpleNamespace:
        backend, count = self.model_runner.attn_backend, len(batch.reqs)
        if not self.graph:
            backend.init_forward_metadata(
                SimpleNamespace(
                    batch_size=count,
                    forward_mode=batch.forward_mode,
                    spec_info=batch.spec_info,
                    req_pool_indices=batch.req_pool_indices,
                    seq_lens=batch.seq_lens,
                    seq_lens_cpu=batch.seq_lens_cpu,
                )
            )
            return backend.forward_metadata
        padding = torch.zeros(1, dtype=torch.int64)
        seq_lens = torch.cat([batch.seq_lens, padding + 1])
        backend.init_forward_metadata_replay_cuda_graph(
            count + 1,
            torch.cat([batch.req_pool_indices, padding]),
            seq_lens,
            int(seq_lens.sum()),
            None,
            batch.forward_mode,
            batch.spec_info,
            seq_lens_cpu=seq_lens,
        )
        return SimpleNamespace(
            qo_indptr=backend.qo_indptr[: count + 1],
            kv_indptr=backend.kv_indptr[: count + 1],
            kv_indices=backend.cuda_graph_kv_indices,
            custom_mask=backend.cuda_graph_custom_mask,
            mask_indptr=backend.mask_indptr[: count + 1],
            max_extend_len=backend.num_draft_tokens,
        )

    def _seen(self, laid: Any, ids: torch.Tensor, places: torch.Tensor) -> list[Pairs | None]:
        """What each row attends to, None for a row that no program computes."""
        seen: list[Pairs | None] = [None] * len(ids)
        qo, kv, start = (x.tolist() for x in (laid.qo_indptr, laid.kv_indptr, laid.mask_indptr))
        own = list(zip(places.tolist(), ids.tolist(), strict=True))
        for i in range(len(qo) - 1):
            prefix = self.world.read(laid.kv_indices[kv[i] : kv[i + 1]])
            extend = qo[i + 1] - qo[i]
            for row in range(min(extend, laid.max_extend_len)):
                first = start[i] + row * (len(prefix) + extend) + len(prefix)
                cells = laid.custom_mask[first : first + extend].tolist()
                tree = [
                    own[qo[i] + c] for c, cell in enumerate(cells) if cell and qo[i] + c < len(own)
                ]
                if qo[i] + row < len(ids):
                    seen[qo[i] + row] = prefix + tree
        return seen


class DraftPool:
    """KV of the one-layer drafter: what each slot was told, and for which position."""

    def __init__(self) -> None:
        self.k, self.v = torch.full((SLOTS + 1, 2), -1.0), torch.full((SLOTS + 1, 2), -1.0)

    def set_kv_buffer(
        self, layer: Any, loc: Any, k: Any, v: Any, k_scale: Any, v_scale: Any
    ) -> None:
        self.k[loc], self.v[loc] = k.view(-1, 2), v.view(-1, 2)


class DraftAttention:
    """The projections that DFLASH's worker calls for the context."""

    num_kv_heads, head_dim = 1, 2

    def __init__(self) -> None:
        self.attn = SimpleNamespace(k_scale=None, v_scale=None)

    def kv_proj_only(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return hidden.clone(), hidden.clone()

    def apply_k_norm(self, k: torch.Tensor) -> torch.Tensor:
        return k

    def apply_k_rope(self, positions: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.stack([k[:, 0], positions.float()], dim=1)


class Drafter:
    """TpModelWorker of the drafter: knows the truth and hides it among other tokens."""

    def __init__(self, world: World, server_args: Args) -> None:
        self.world, self.args = world, server_args
        self.model_runner = world.runner(server_args, draft=True)
        self.model_runner.req_to_token_pool = world.table
        self.model_runner.token_to_kv_pool = world.draft_pool
        self.model_runner.token_to_kv_pool_allocator = world.allocator
        self.model_runner.forward = self.forward
        layer = SimpleNamespace(self_attn=DraftAttention())
        self.model_runner.model = SimpleNamespace(
            layers=[layer], block_size=None, project_target_hidden=lambda hidden: hidden
        )
        config = {"dflash_config": {"mask_token_id": MASK_TOKEN, "block_size": world.block_size}}
        self.model_runner.model_config = SimpleNamespace(
            hf_config={**config, "num_hidden_layers": 1}
        )

    def forward(self, batch: Any) -> SimpleNamespace:
        """Hidden states [bs * block, VOCAB] that the unit head takes for logits."""
        block = self.args.speculative_num_draft_tokens
        assert batch.spec_info.draft_token_num == block
        hidden = torch.from_numpy(self.world.rng.normal(size=(batch.batch_size, block, VOCAB)))
        ids = batch.input_ids.view(batch.batch_size, block)
        for i, length in enumerate(batch.seq_lens.tolist()):
            slots = self.world.table.req_to_token[batch.req_pool_indices[i], :length].long()
            told = self.world.draft_pool.v[slots].long().tolist()
            keyed = self.world.draft_pool.k[slots].long().tolist()
            self.world.note_context(i, told, keyed)
            seen = [(place, token) for token, place in told] + [(length, int(ids[i, 0]))]
            for j in range(1, block):
                token = truth(seen)
                hidden[i, j, token] += self.world.help
                seen.append((length + j, token))
        return SimpleNamespace(
            logits_output=SimpleNamespace(hidden_states=hidden.float().flatten(0, 1))
        )


class World:
    """Pools, workers, and the scheduler's part of a decode loop."""

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
        self.draft_pool = DraftPool()
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
