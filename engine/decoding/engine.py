"""The DDTree engine: draft, build, verify, walk, commit, repeat, for a batch of requests of different lengths.

One step, in order: (1) the drafter's marginals, (2) a best-first tree a request, (3) rows, mask and offsets for
budget + 1 rows a request, (4) one target forward (eager, or a replay over persistent padded buffers), (5) the
acceptance walk, (6) KV compaction by gather. Chain decoding is the same loop with top-k 1 and a budget of
``block_size - 1``; :mod:`engine.decoding.plain` decodes
without any draft. Where each tensor lives: :mod:`engine.models.device`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.attention.addressed import AddressedAttention, attend
from engine.attention.dense import DenseAttention, DenseRequest
from engine.decoding import metadata
from engine.decoding.best_first import BuiltTree, build_trees
from engine.decoding.commit import compact_and_trace, nodes_held, watched_layers
from engine.decoding.metadata import Links, VerifyInputs, VerifyRequest
from engine.decoding.replay import ReplayBuffers
from engine.decoding.settings import Backend, EngineConfig, FinishReason, Graph
from engine.drafters.base import Drafter
from engine.models.decoder import AttentionFn, Decoder
from engine.models.device import HOST, to_device, to_host
from engine.models.kv_pool import KVPool, ReqToTokenPool, SlotAllocator
from engine.tree import DraftTree


@dataclass
class RequestState:
    """One request on its way."""

    rid: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    req_pool_idx: int
    root: int = -1  # the bonus token: emitted, not yet in the KV cache
    prefix_len: int = 0  # committed tokens
    output: list[int] = field(default_factory=list)
    finished: FinishReason | None = None


@dataclass(frozen=True, eq=False)
class StepResult:
    """Everything one verify step used and concluded; tensors are views, valid until the next step.

    On the model's device but for ``links`` and ``target_predict``.
    """

    requests: list[VerifyRequest]
    prefix_slots: list[Tensor]  # before the step
    built: list[BuiltTree]
    inputs: VerifyInputs  # as handed to the attention (captured size)
    links: Links
    logits: Tensor  # [rows, V]
    target_predict: Tensor  # int64 [rows]
    accepted: list[list[int]]  # node numbers, root first
    bonus: list[int]
    emitted: list[list[int]]
    committed_kv: dict[
        int, list[list[int]]
    ]  # layer -> request -> node whose KV each new position holds
    mask_capacity: int | None


class Engine:
    """Holds the KV pool, the drafter and the requests of one run."""

    def __init__(self, model: Decoder, drafter: Drafter, config: EngineConfig) -> None:
        if drafter.block_size != config.block_size:
            raise ValueError(
                f"block_size: the engine has {config.block_size}, the drafter {drafter.block_size}"
            )
        config.check_room(model.config.max_position)
        self.model, self.drafter, self.config = model, drafter, config
        slots = config.max_requests * (config.max_context + config.q_len) + 1
        self.pool = KVPool(model.config, slots, model.dtype, model.device)
        self.allocator = SlotAllocator(slots)
        self.table = ReqToTokenPool(
            config.max_requests + 1, config.max_context + config.q_len, model.device
        )
        self.addressed = AddressedAttention(self.pool, config.unwritten)
        self.running: list[RequestState] = []
        self._buffers: dict[int, ReplayBuffers] = {}

    @torch.inference_mode()
    def add(self, rid: str, prompt: Sequence[int], max_new_tokens: int) -> RequestState:
        """Prefill a prompt; its first token is emitted at once. Raises ``ValueError`` for one that does not fit."""
        self.config.check_prompt(rid, len(prompt), max_new_tokens)
        state = RequestState(rid, tuple(prompt), max_new_tokens, self.table.alloc())
        slots = to_device(self.allocator.alloc(len(prompt)), self.model.device)
        self.table.req_to_token[state.req_pool_idx, : len(prompt)] = slots.to(torch.int32)
        state.prefix_len = len(prompt)
        logits, features = self._prefill(prompt, slots)
        self.drafter.start(rid, prompt, features)
        state.root = int(self.config.sampler.choose(logits[None], rid, [len(prompt)])[0])
        self.running.append(state)
        self._emit(state, [state.root])
        return state

    def _prefill(self, prompt: Sequence[int], slots: Tensor) -> tuple[Tensor, Tensor]:
        rows, device = len(prompt), self.model.device
        mask = torch.ones(rows, rows, dtype=torch.bool, device=device).tril()
        positions = torch.arange(rows, device=device)

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.pool.store(layer, slots, k, v)
            return attend(q, k, v, mask)

        out = self.model(
            to_device(torch.tensor(prompt, device=HOST), device),
            positions,
            attention,
            feature_layers=self.drafter.target_layer_ids,
            logits_rows=positions[-1:],
        )
        return out.logits[0], self._joined(out.features)

    @staticmethod
    def _joined(features: Tensor) -> Tensor:
        """[layers, rows, hidden] -> [rows, layers * hidden]."""
        return features.transpose(0, 1).flatten(1)

    @torch.inference_mode()
    def step(self) -> StepResult:
        """One verify step of every running request. Raises ``RuntimeError`` if none is running."""
        if not self.running:
            raise RuntimeError("step: no request is running")
        states = list(self.running)
        built = self._draft(states)
        requests = [
            VerifyRequest(s.rid, b.tree, s.prefix_len, s.req_pool_idx)
            for s, b in zip(states, built, strict=True)
        ]
        prefix_slots = [
            self.table.req_to_token[r.req_pool_idx, : r.prefix_len].long() for r in requests
        ]
        raw, slots = self._layout(requests)
        inputs, capacity = self._launch_inputs(raw)
        out = self.model(
            inputs.input_ids,
            inputs.positions,
            self._attention(requests, inputs),
            feature_layers=self.drafter.target_layer_ids,
        )
        predict = self._predict(requests, out.logits)
        stages = self.config.stages
        links = stages.links([r.tree for r in requests], self.config.q_len)
        tokens, predict = self._on_host(inputs.input_ids, predict)
        accepted = self._walk(requests, tokens, links, predict)
        bonus = stages.bonus(predict, accepted)
        committed = self._commit(states, accepted, slots, self._joined(out.features), built)
        emitted = [
            self._advance(state, request.tree, path, token)
            for state, request, path, token in zip(states, requests, accepted, bonus, strict=True)
        ]
        return StepResult(
            requests,
            prefix_slots,
            built,
            inputs,
            links,
            out.logits,
            predict.flatten(),
            accepted,
            bonus,
            emitted,
            committed,
            capacity,
        )

    def _draft(self, states: list[RequestState]) -> list[BuiltTree]:
        logits = self.drafter.draft([s.rid for s in states], [s.root for s in states])
        return build_trees(
            logits,
            [state.root for state in states],
            self.config.budget,
            self.config.topk,
            max_depth=self.config.max_depth,
            spine=self.config.spine,
            kept=self.config.kept_candidates,
        )

    def _layout(self, requests: list[VerifyRequest]) -> tuple[VerifyInputs, Tensor]:
        """Rows, slots, mask and offsets of the live batch; its slots once more on the host, int64 [bs, q_len].

        Rows are made on the host and go to the device in one copy, the mask in another.
        """
        q_len, stages, device = self.config.q_len, self.config.stages, self.model.device
        stages.begin([request.tree for request in requests])
        slots = self.allocator.alloc(len(requests) * q_len)
        masks = [stages.tree_mask(r.tree, r.prefix_len, q_len) for r in requests]
        arrays = (
            torch.cat([metadata.tree_tokens(r.tree, q_len) for r in requests]),
            torch.cat([stages.tree_positions(r.tree, r.prefix_len, q_len) for r in requests]),
            torch.tensor([r.prefix_len for r in requests], device=HOST),
            slots,
        )
        together = to_device(torch.cat(arrays), device)
        lengths = [len(array) for array in arrays]
        ids, positions, prefix_lens, out_cache_loc = torch.split(together, lengths)
        for i, request in enumerate(requests):
            line = self.table.req_to_token[request.req_pool_idx]
            own = out_cache_loc[i * q_len : (i + 1) * q_len]
            line[request.prefix_len : request.prefix_len + q_len] = own
        attention = metadata.build_attention_metadata(
            prefix_lens,
            metadata.gather_kv_indices(self.table.req_to_token, requests),
            to_device(torch.cat([mask.flatten() for mask in masks]).to(torch.uint8), device),
            stages.verify_width(self.config.budget, self.config.block_size),
        )
        laid_out = VerifyInputs(ids, positions, prefix_lens, out_cache_loc, attention)
        return laid_out, slots.view(len(requests), q_len)

    def _launch_inputs(self, raw: VerifyInputs) -> tuple[VerifyInputs, int | None]:
        """The inputs that the forward reads: the live ones, or the persistent buffers of a captured size."""
        stages, device = self.config.stages, self.model.device
        if self.config.graph is Graph.EAGER:
            return stages.inputs(raw).to(device), None
        size = self.config.captured_for(len(raw.seq_lens))
        if size not in self._buffers:
            self._buffers[size] = ReplayBuffers(
                size, self.config.q_len, self.config.max_context, device
            )
        buffers = self._buffers[size]
        width = raw.attention.max_extend_len
        refreshed = buffers.refresh(raw, width, stages)
        return stages.inputs(refreshed).to(device), buffers.mask_capacity

    def _attention(self, requests: list[VerifyRequest], inputs: VerifyInputs) -> AttentionFn:
        if self.config.backend is Backend.ADDRESSED:
            return self.addressed.begin(inputs.attention, inputs.out_cache_loc)
        q_len = self.config.q_len
        dense = [
            DenseRequest(
                slice(i * q_len, (i + 1) * q_len),
                self.table.req_to_token[r.req_pool_idx, : r.prefix_len].long(),
                to_device(metadata.tree_mask(r.tree, r.prefix_len, q_len), self.model.device),
            )
            for i, r in enumerate(requests)
        ]
        return DenseAttention(self.pool, dense, inputs.out_cache_loc)

    def _predict(self, requests: list[VerifyRequest], logits: Tensor) -> Tensor:
        """The target's token of every row, int64 [captured_bs, q_len]; a padded request's rows are argmaxes."""
        predict = logits.argmax(dim=-1).view(-1, self.config.q_len)
        if self.config.sampler.temperature > 0:
            rows = logits.view(-1, self.config.q_len, logits.shape[-1])
            for i, request in enumerate(requests):
                depths = request.tree.depths.tolist()
                places = [request.prefix_len + d + 1 for d in depths]
                real = rows[i, : len(places)]
                predict[i, : len(places)] = self.config.sampler.choose(real, request.rid, places)
        return predict

    def _on_host(self, input_ids: Tensor, predict: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens that the forward read and those that it chose, int64 [captured_bs, q_len] each, in one copy."""
        both = to_host(torch.stack([input_ids, predict.flatten()]))
        tokens, chosen = both.view(2, -1, self.config.q_len)
        return tokens, chosen

    def _walk(
        self, requests: list[VerifyRequest], input_ids: Tensor, links: Links, predict: Tensor
    ) -> list[list[int]]:
        tokens, chosen = input_ids.tolist(), predict.tolist()
        next_token, next_sibling = (
            links.retrieve_next_token.tolist(),
            links.retrieve_next_sibling.tolist(),
        )
        return [
            self.config.stages.walk(next_token[i], next_sibling[i], tokens[i], chosen[i])
            for i in range(len(requests))
        ]

    def _commit(
        self,
        states: list[RequestState],
        accepted: list[list[int]],
        slots: Tensor,
        features: Tensor,
        built: list[BuiltTree],
    ) -> dict[int, list[list[int]]]:
        """Move KV, free what was not accepted, tell the drafter; what each new position really holds afterwards.

        ``slots``: int64 [bs, q_len] on the host; ``features``: [rows, width].
        """
        commits, q_len = [], self.config.q_len
        for i, (state, path) in enumerate(zip(states, accepted, strict=True)):
            commits.append(compact_and_trace(self.config.stages, self.pool, slots[i], path))
            self.allocator.free(slots[i, len(path) :])
            tokens = built[i].tree.tokens[path].tolist()
            rows = torch.tensor(self.config.stages.hidden_rows(path), device=HOST) + i * q_len
            handed = features.index_select(0, to_device(rows, features.device))
            self.drafter.commit(state.rid, tokens, handed)
        return nodes_held(watched_layers(self.pool), commits)

    def _advance(
        self, state: RequestState, tree: DraftTree, path: list[int], bonus: int
    ) -> list[int]:
        """Count the committed tokens and emit the new ones; the tokens emitted by this step."""
        state.prefix_len += len(path)
        state.root = bonus
        accepted = [*tree.tokens[path[1:]].tolist(), bonus]
        emitted = self.config.stages.emit(accepted, self.config.stop)
        self._emit(state, emitted)
        return emitted

    def _emit(self, state: RequestState, tokens: list[int]) -> None:
        room = state.max_new_tokens - len(state.output)
        state.output += tokens[:room]
        if any(token in self.config.stop for token in tokens):
            state.finished = FinishReason.STOP
        elif len(state.output) >= state.max_new_tokens:
            state.finished = FinishReason.LENGTH
        elif state.prefix_len + self.config.q_len > self.config.max_context:
            state.finished = FinishReason.CONTEXT
        if state.finished:
            self._release(state)

    def _release(self, state: RequestState) -> None:
        slots = self.table.req_to_token[state.req_pool_idx, : state.prefix_len]
        self.allocator.free(to_host(slots))
        self.table.free(state.req_pool_idx)
        self.drafter.finish(state.rid)
        self.running.remove(state)
