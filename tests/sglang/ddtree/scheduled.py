"""What SGLang's scheduler hands to a worker, as far as it is read: arguments, requests, batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch


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
        self.prefix_slots = torch.empty(0, dtype=torch.int64)  # of a prefix that is cached
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
        cached = [len(r.prefix_slots) for r in self.reqs]
        lengths = [len(r.origin_input_ids) for r in self.reqs]
        view = SimpleNamespace(**vars(self))
        view.extend_seq_lens = [a - b for a, b in zip(lengths, cached, strict=True)]
        view.extend_prefix_lens = cached
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
