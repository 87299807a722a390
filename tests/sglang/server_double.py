"""A test double of SGLang 0.5.12: the classes and functions that the tap watches, on CPU tensors, under SGLang's names.

They do what the originals do to the fields that the tap reads and nothing else. ``installed`` puts them into
``sys.modules`` and applies hooks the way SGLang's registry does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

VOCAB, CONTEXT, SLOTS = 50, 64, 128


class Mode:
    """ForwardMode."""

    def __init__(self, name: str):
        self.name = name

    def is_target_verify(self) -> bool:
        return self.name == "verify"

    def is_idle(self) -> bool:
        return self.name == "idle"

    def is_extend(self) -> bool:
        return self.name == "extend"


class Req:
    """One request."""

    def __init__(self, rid: str, limit: int = 1000):
        self.rid, self.output_ids, self.limit = rid, [], limit
        self.eos_token_ids = {2}
        self.sampling_params = SimpleNamespace(ignore_eos=False)

    def finished(self) -> bool:
        ended = bool(self.output_ids) and self.output_ids[-1] in self.eos_token_ids
        return len(self.output_ids) >= self.limit or (ended and not self.sampling_params.ignore_eos)


class TritonAttnBackend:
    """Both layouts; the width is the configured number of draft tokens."""

    def __init__(self, req_to_token: torch.Tensor, num_draft_tokens: int, max_bs: int = 4):
        self.req_to_token, self.num_draft_tokens = req_to_token, num_draft_tokens
        self.token_to_kv_pool_allocator = SimpleNamespace(size=SLOTS - 1)
        self.max_context_len, self.enable_deterministic = CONTEXT, False
        self.forward_metadata: Any = None
        self.qo_indptr = torch.zeros(max_bs + 1, dtype=torch.int64)
        self.kv_indptr = torch.zeros(max_bs + 1, dtype=torch.int32)
        self.mask_indptr = torch.zeros(max_bs + 1, dtype=torch.int64)
        self.cuda_graph_kv_indices = torch.full((256,), -7)
        self.cuda_graph_custom_mask = torch.full((1024,), 9, dtype=torch.uint8)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        if not forward_batch.forward_mode.is_target_verify():
            return
        width, lens = self.num_draft_tokens, forward_batch.seq_lens
        count = len(forward_batch.req_pool_indices)
        self._fill(forward_batch.req_pool_indices, lens)
        self.forward_metadata = SimpleNamespace(
            qo_indptr=torch.arange(0, (1 + count) * width, width, dtype=torch.int32),
            kv_indptr=self.kv_indptr[: count + 1],
            kv_indices=self._slots(forward_batch.req_pool_indices, lens),
            custom_mask=forward_batch.spec_info.custom_mask,
            mask_indptr=self.mask_indptr[: count + 1],
            max_extend_len=width,
        )

    def init_forward_metadata_replay_cuda_graph(
        self,
        bs: int,
        req_pool_indices: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_sum: int,
        encoder_lens: Any,
        forward_mode: Mode,
        spec_info: Any,
        seq_lens_cpu: torch.Tensor | None,
    ) -> None:
        width = self.num_draft_tokens
        self._fill(req_pool_indices, seq_lens)
        self.qo_indptr[: bs + 1] = torch.arange(0, (1 + bs) * width, width)
        slots = self._slots(req_pool_indices, seq_lens)
        self.cuda_graph_kv_indices[: len(slots)] = slots
        mask = spec_info.custom_mask
        self.cuda_graph_custom_mask[: len(mask)] = mask

    def _fill(self, pool: torch.Tensor, lens: torch.Tensor) -> None:
        count, width = len(pool), self.num_draft_tokens
        self.kv_indptr[1 : count + 1] = torch.cumsum(lens, 0)
        self.mask_indptr[1 : count + 1] = torch.cumsum(width * (lens + width), 0)

    def _slots(self, pool: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
        pairs = zip(pool.tolist(), lens.tolist(), strict=True)
        return torch.cat([self.req_to_token[row, :length] for row, length in pairs]).long()


def verify_tree_greedy_func(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    count, rows = candidates.shape
    for i in range(count):
        node, accepted = 0, 0
        accept_index[i, 0] = i * rows
        while True:
            wanted, child = int(target_predict[i, node]), int(retrieve_next_token[i, node])
            while child != -1 and int(candidates[i, child]) != wanted:
                child = int(retrieve_next_sibling[i, child])
            predicts[i * rows + node] = wanted
            if child == -1:
                break
            accepted, node = accepted + 1, child
            accept_index[i, accepted] = i * rows + node
        accept_token_num[i] = accepted
    return predicts, accept_index, accept_token_num


class EagleVerifyInput:
    """Verification that emits and commits by itself, as before the overlap scheduler took that over."""

    topk = 2

    def __init__(self, draft_token: torch.Tensor, custom_mask: torch.Tensor, **fields: Any):
        self.draft_token, self.custom_mask = draft_token, custom_mask
        self.__dict__.update(fields)

    def verify(
        self,
        batch: Any,
        logits_output: Any,
        token_to_kv_pool_allocator: Any,
        page_size: int,
        vocab_mask: Any = None,
    ) -> str:
        count, rows = self.retrieve_next_token.shape
        predict, index, _ = verify_tree_greedy_func(
            torch.full((count * rows,), 123, dtype=torch.int32),
            torch.full((count, rows), -1, dtype=torch.int32),
            torch.zeros(count, dtype=torch.int32),
            self.draft_token.reshape(count, rows),
            self.retrieve_next_token,
            self.retrieve_next_sibling,
            logits_output.next_token_logits.argmax(-1).reshape(count, rows),
        )
        commit(batch, index, predict)
        return "verified"


class NgramVerifyInput(EagleVerifyInput):
    """The same; the walk is seen through ``_fill_requests``."""

    topk = -1

    def verify(
        self, batch: Any, logits_output: Any, page_size: int, vocab_mask: Any = None
    ) -> tuple[int, int, int]:
        count, rows = self.retrieve_next_token.shape
        walk = getattr(verify_tree_greedy_func, "__wrapped__", verify_tree_greedy_func)
        self.predict, self.accept_indices, self.num_correct_drafts = walk(
            torch.full((count * rows + 1,), 123, dtype=torch.int32),
            torch.full((count, rows), -1, dtype=torch.int32),
            torch.zeros(count, dtype=torch.int32),
            self.draft_token.reshape(count, rows),
            self.retrieve_next_token,
            self.retrieve_next_sibling,
            logits_output.next_token_logits.argmax(-1).reshape(count, rows),
        )
        self._fill_requests(batch, logits_output)
        return (1, 2, 3)

    def _fill_requests(self, batch: Any, logits_output: Any) -> None:
        commit(batch, self.accept_indices, self.predict)


def commit(batch: Any, index: torch.Tensor, predict: torch.Tensor) -> None:
    """Emit up to each request's end, remap the table, lengthen: ``index`` is cut in place, as SGLang does."""
    table, rows = batch.req_to_token_pool.req_to_token, len(batch.out_cache_loc) // len(batch.reqs)
    for i, req in enumerate(batch.reqs):
        path = [row for row in index[i].tolist() if row != -1]
        for place, row in enumerate(path):
            req.output_ids.append(int(predict[row]))
            if req.finished():
                index[i, place + 1 :] = -1
                path = path[: place + 1]
                break
        start, pool = int(batch.seq_lens[i]), int(batch.req_pool_indices[i])
        table[pool, start : start + len(path)] = batch.out_cache_loc[path].to(table.dtype)
        batch.seq_lens[i] += len(path)
        batch.seq_lens_cpu[i] += len(path)
    batch.out_cache_loc = batch.out_cache_loc[: rows - 1]


def build_tree_kernel_efficient(
    bonus_tokens: Any, parent_list: Any, top_scores_index: Any, draft_tokens: Any, topk: int
) -> str:
    return "tree"


class NGRAMWorker:
    drafts: Any = None

    def _prepare_draft_tokens(self, batch: Any) -> Any:
        return self.drafts


class CudaGraphRunner:
    buffers: Any = None

    def replay_prepare(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> None:
        """The backend's hook fires inside."""
        self.prepare(forward_batch)

    def prepare(self, forward_batch: Any) -> None:
        raise NotImplementedError


class Scheduler:
    def __init__(self, server_args: Any, tp_rank: int = 0):
        self.server_args, self.tp_rank, self.tp_size = server_args, tp_rank, server_args.tp_size
        self.pp_rank, self.dp_rank = 0, None


PLACES = {
    "sglang.srt.layers.attention.triton_backend": (TritonAttnBackend,),
    "sglang.srt.speculative.eagle_info": (EagleVerifyInput,),
    "sglang.srt.speculative.ngram_info": (NgramVerifyInput,),
    "sglang.srt.speculative.ngram_worker": (NGRAMWorker,),
    "sglang.srt.speculative.eagle_utils": (build_tree_kernel_efficient, verify_tree_greedy_func),
    "sglang.srt.model_executor.cuda_graph_runner": (CudaGraphRunner,),
    "sglang.srt.managers.scheduler": (Scheduler,),
}


@contextmanager
def installed(places: Any = None) -> Iterator[Callable[[str, Any], None]]:
    """The double under SGLang's names; yields what puts a hook around the function at a path."""
    before, undo = dict(sys.modules), []
    for name, members in (places or PLACES).items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = ModuleType(".".join(parts[:end]))
            module.__path__ = []
            sys.modules.setdefault(module.__name__, module)
        for member in members:
            setattr(sys.modules[name], member.__name__, member)

    def hook_on(path: str, hook: Any) -> None:
        place, _, name = path.rpartition(".")
        holder: Any = sys.modules.get(place)
        if holder is None:
            module, _, owner = place.rpartition(".")
            holder = getattr(sys.modules[module], owner)
        original = getattr(holder, name)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return hook(original, *args, **kwargs)

        undo.append((holder, name, original))
        setattr(holder, name, wrapper)
        if holder is sys.modules.get(place) and name in globals():  # as the registry finds copies
            undo.append((sys.modules[__name__], name, original))
            globals()[name] = wrapper

    try:
        yield hook_on
    finally:
        for holder, name, original in reversed(undo):
            setattr(holder, name, original)
        for name in [name for name in sys.modules if name not in before]:
            if name.startswith("sglang"):
                del sys.modules[name]
