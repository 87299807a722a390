"""The drafter's worker: drafts from what lies in its cache, and notes where that is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from tests.sglang.ddtree.scheduled import Args
from tests.sglang.ddtree.truth import CONTEXT, MASK_TOKEN, SLOTS, VOCAB, truth

if TYPE_CHECKING:
    from tests.sglang.ddtree.world import World


class MHATokenToKVPool:
    """SGLang's pool by name: KV of the one-layer drafter: what each slot was told, and for which position."""

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
        self.rotary_emb = SimpleNamespace(cos_sin_cache=torch.zeros(CONTEXT, 1))

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
            layers=[layer], block_size=None, project_target_hidden=lambda hidden: hidden,
            fc=SimpleNamespace(weight=torch.zeros(VOCAB, 2)),
        )  # fmt: skip
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
