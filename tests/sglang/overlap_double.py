"""A test double of SGLang 0.5.23's shapes: one metadata call for replay, a step that is sampled and then moved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from tests.sglang import server_double as older

Scheduler = older.Scheduler


class TritonAttnBackend(older.TritonAttnBackend):
    """The persistent mask has another name; eager and replay as before."""

    def __init__(self, req_to_token: torch.Tensor, num_draft_tokens: int):
        super().__init__(req_to_token, num_draft_tokens)
        self._verify_mask = SimpleNamespace(buffer=self.cuda_graph_custom_mask)
        del self.cuda_graph_custom_mask

    def init_forward_metadata(self, forward_batch: Any) -> None:
        super().init_forward_metadata(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        pool, lens, width = (
            forward_batch.req_pool_indices,
            forward_batch.seq_lens,
            self.num_draft_tokens,
        )
        self._fill(pool, lens)
        count = len(pool)
        self.qo_indptr[: count + 1] = torch.arange(0, (1 + count) * width, width)
        slots = self._slots(pool, lens)
        self.cuda_graph_kv_indices[: len(slots)] = slots
        mask = forward_batch.spec_info.custom_mask
        if mask is not None:
            self._verify_mask.buffer[: len(mask)] = mask


class DecodeCudaGraphRunner:
    buffers: Any = None

    def load_batch(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> None:
        self.prepare(forward_batch)

    def prepare(self, forward_batch: Any) -> None:
        raise NotImplementedError


def eagle_sample(
    verify_input: Any, batch: Any, logits_output: Any, grammar_mask: Any = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    count, rows = verify_input.retrieve_next_token.shape
    predict, index, correct = older.verify_tree_greedy_func(
        torch.zeros(count * rows, dtype=torch.int32),
        torch.full((count, rows), -1, dtype=torch.int32),
        torch.zeros(count, dtype=torch.int32),
        verify_input.draft_token.reshape(count, rows),
        verify_input.retrieve_next_token,
        verify_input.retrieve_next_sibling,
        logits_output.next_token_logits.argmax(-1).reshape(count, rows),
    )
    return predict, correct + 1, index


class Pool:
    """Two layers; a row's keys are its slot's number until something is moved."""

    def __init__(self) -> None:
        rows = torch.arange(older.SLOTS, dtype=torch.float32)[:, None, None]
        self.k_buffer = [rows.repeat(1, 2, 4) + 1000 * layer for layer in range(2)]
        self.v_buffer = [-buffer for buffer in self.k_buffer]
        self.broken_layer: int | None = None

    def move(self, targets: torch.Tensor, sources: torch.Tensor) -> None:
        for layer in range(2):
            if layer != self.broken_layer:
                for buffer in (self.k_buffer[layer], self.v_buffer[layer]):
                    buffer[targets] = buffer[sources].clone()


def move_accept_tokens_to_target_kvcache(
    batch: Any, accept_index: Any, num_correct_drafts: Any, token_to_kv_pool_allocator: Any
) -> str:
    path = accept_index[accept_index != -1].long()
    window = batch.out_cache_loc
    token_to_kv_pool_allocator.get_kvcache().move(window[: len(path)], window[path])
    return "moved"


class DFlashVerifyInput(older.EagleVerifyInput):
    topk = 1


class DFlashWorkerV2:
    """The verify input is made inside; ``lay`` stands for the target's forward."""

    lay: Any = None
    accept: int = 3

    def forward_batch_generation(self, batch: Any, on_publish: Any = None) -> Any:
        spec = DFlashVerifyInput(
            torch.tensor([5, 9, 12, 30]),
            None,  # type: ignore[arg-type]
            positions=torch.tensor([2, 3, 4, 5]),
            draft_token_num=4,
        )
        self.lay(spec)
        return SimpleNamespace(
            accept_lens=torch.tensor([self.accept], dtype=torch.int32),
            logits_output=self.logits,
            next_token_ids=torch.tensor([9, 12, 44, 0]),
        )


PLACES = {
    "sglang.srt.layers.attention.triton_backend": (TritonAttnBackend,),
    "sglang.srt.speculative.eagle_utils": (eagle_sample, older.build_tree_kernel_efficient),
    "sglang.srt.speculative.spec_utils": (move_accept_tokens_to_target_kvcache,),
    "sglang.srt.speculative.dflash_worker_v2": (DFlashWorkerV2,),
    "sglang.srt.model_executor.runner.decode_cuda_graph_runner": (DecodeCudaGraphRunner,),
    "sglang.srt.managers.scheduler": (Scheduler,),
}
