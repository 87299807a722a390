"""The target's worker: reads what each row attends to, as SGLang's backend laid it out, and says what follows."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from tests.sglang.ddtree.scheduled import Args
from tests.sglang.ddtree.truth import VOCAB, Pairs, spread, truth

if TYPE_CHECKING:
    from tests.sglang.ddtree.world import World


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
            prompt, cached = req.origin_input_ids, len(req.prefix_slots)
            slots = self.world.allocator.alloc(len(prompt) - cached)
            table = self.world.table.req_to_token[index]
            table[: len(prompt)] = torch.cat([req.prefix_slots, slots]).int()
            self.world.write(
                slots, torch.tensor(prompt[cached:]), torch.arange(cached, len(prompt))
            )
            rows += [[token, place] for place, token in enumerate(prompt)][cached:]
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
