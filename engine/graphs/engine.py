"""GraphEngine: greedy decoding whose steps run on the device alone, plain or with a DFlash drafter.

The host adds requests, reads what was accepted after each step (one copy), and ends requests; nothing else crosses.
Steps cover padded batch sizes (``EngineConfig.captured_bs``), each captured once as CUDA graphs. On a CPU, and with
``graphs`` off, the same functions run without a graph.

Covered: several requests, stop tokens, finish by length and by context. Not covered: temperatures above 0, spines,
depth caps and injected faults, which the eager engine (:mod:`engine.decoding.engine`) has; each is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.attention.addressed import attend
from engine.decoding.engine import RequestState
from engine.decoding.settings import EngineConfig, FinishReason
from engine.decoding.stages import CORRECT
from engine.graphs.drafting import DraftStep
from engine.graphs.forward import decoder_stack
from engine.graphs.layout import PADDED_SEQ_LEN
from engine.graphs.step import DeviceStep, Part
from engine.models.decoder import Decoder
from engine.models.device import HOST, to_device, to_host
from engine.models.dflash import DFlash
from engine.models.kv_pool import KVPool, ReqToTokenPool, SlotAllocator


class GraphEngine:
    """Requests of one run. A request holds slots for all it may commit from its start to its end."""

    def __init__(
        self,
        target: Decoder,
        drafter: DFlash | None,
        config: EngineConfig,
        *,
        graphs: bool | None = None,
    ) -> None:
        """``graphs``: capture steps as CUDA graphs; None: where the target is on a GPU. Raises ``ValueError``."""
        refuse(config)
        _check_room(config, target)
        self.target, self.config = target, config
        self.graphs = target.device.type == "cuda" if graphs is None else graphs
        if self.graphs and target.device.type != "cuda":
            raise ValueError(f"graphs: expected the target on a GPU, found it on {target.device}")
        self.q_len = 1 if drafter is None else config.q_len
        room = config.max_context + self.q_len
        slots = config.max_requests * room + 1
        self.pool = KVPool(target.config, slots, target.dtype, target.device)
        self.allocator = SlotAllocator(slots)
        self.table = ReqToTokenPool(config.max_requests + 1, room, target.device)
        self.stack = decoder_stack(target)
        self.drafter = (
            None if drafter is None else DraftStep(drafter, target, slots, config.block_size)
        )
        self.running: list[RequestState] = []
        self._slots: dict[str, Tensor] = {}
        self.steps: dict[int, DeviceStep] = {}
        self._pinned: Tensor | None = None  # what steps in graphs are read through
        self._laid_out: tuple[int, tuple[str, ...]] | None = (
            None  # what the state on the device is about
        )

    @property
    def width(self) -> int:
        """Ranks that a depth of a tree may use."""
        budget, topk = self.config.budget, self.config.topk
        return budget if topk is None else min(topk, budget)

    @torch.inference_mode()
    def add(self, rid: str, prompt: Sequence[int], max_new_tokens: int) -> RequestState:
        """Prefill a prompt; its first token is emitted at once. Raises ``ValueError`` for one that does not fit."""
        if not 0 < len(prompt) <= self.config.max_context:
            raise ValueError(
                f"prompt of {rid}: expected 1 … {self.config.max_context} tokens, found {len(prompt)}"
            )
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: expected at least 1, found {max_new_tokens}")
        row = self.table.alloc()
        slots = self.allocator.alloc(self.table.req_to_token.shape[1])
        there = to_device(slots, self.target.device)
        self.table.req_to_token[row] = there.to(torch.int32)
        state = RequestState(rid, tuple(prompt), max_new_tokens, row, prefix_len=len(prompt))
        self._slots[rid] = slots
        state.root = self._prefill(prompt, there[: len(prompt)])
        self.running.append(state)
        self._laid_out = None  # a name may come back
        self._emit(state, [state.root])
        return state

    def _prefill(self, prompt: Sequence[int], slots: Tensor) -> int:
        device, drafter = self.target.device, self.drafter
        positions = torch.arange(len(prompt), device=device)
        mask = torch.ones(len(prompt), len(prompt), dtype=torch.bool, device=device).tril()

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.pool.store(layer, slots, k, v)
            return attend(q, k, v, mask)

        ids = to_device(torch.tensor(prompt, device=HOST), device)
        wanted = () if drafter is None else drafter.model.config.target_layer_ids
        out = self.target(
            ids, positions, attention, feature_layers=wanted, logits_rows=positions[-1:]
        )
        if drafter is not None:
            drafter.remember(out.features.transpose(0, 1).flatten(1), positions, slots)
        return int(out.logits[0].argmax())

    @torch.inference_mode()
    def step(self) -> list[list[int]]:
        """One step of every running request; the tokens that each emits. Raises ``RuntimeError`` if none is running."""
        step = self._ready("whole")
        step.run("whole")
        return self._finish(step)

    @torch.inference_mode()
    def verify(self) -> DeviceStep:
        """The first part of a step, up to the accepted paths. The buffers hold it until the next step."""
        step = self._ready("verify", "commit")
        step.run("verify")
        return step

    @torch.inference_mode()
    def commit(self, step: DeviceStep) -> list[list[int]]:
        """The second part: memory moved, requests moved on; the tokens that each emits."""
        step.run("commit")
        return self._finish(step)

    def _ready(self, *parts: Part) -> DeviceStep:
        """The captured step that holds the running requests, their state on the device."""
        if not self.running:
            raise RuntimeError("step: no request is running")
        size = self.config.captured_for(len(self.running))
        if size not in self.steps:
            self.steps[size] = DeviceStep(
                self.target,
                self.stack,
                self.drafter,
                self.pool,
                self.table.req_to_token,
                size,
                self.q_len - 1,
                self.width,
                kept=self.config.kept_candidates,
                graphs=self.graphs,
            )
        if self.steps[size].capture(*parts):
            self._laid_out = None
        about = size, tuple(state.rid for state in self.running)
        if about != self._laid_out:
            self._upload(self.steps[size])
            self._laid_out = about
        return self.steps[size]

    def _upload(self, step: DeviceStep) -> None:
        padding = step.layout.captured - len(self.running)
        for buffer, values, fill in (
            (step.state.seq_lens, [s.prefix_len for s in self.running], PADDED_SEQ_LEN),
            (step.state.roots, [s.root for s in self.running], 0),
            (step.state.request_rows, [s.req_pool_idx for s in self.running], 0),
            (step.state.raw_bs, [len(self.running)], None),
        ):
            padded = values if fill is None else values + [fill] * padding
            buffer.copy_(torch.tensor(padded, dtype=torch.int64, device=HOST))

    def _read(self, said: Tensor) -> Tensor:
        """A copy on the host; waits for the step."""
        if not self.graphs:
            return to_host(said)
        if self._pinned is None or self._pinned.shape != said.shape:
            self._pinned = torch.empty(said.shape, dtype=said.dtype, device=HOST, pin_memory=True)
        self._pinned.copy_(said, non_blocking=True)
        torch.cuda.current_stream(said.device).synchronize()
        return self._pinned

    def _finish(self, step: DeviceStep) -> list[list[int]]:
        """Read what a step accepted and move the requests on."""
        said = self._read(step.said).tolist()
        emitted = []
        for state, (length, *tokens) in zip(list(self.running), said, strict=False):
            state.prefix_len += length
            state.root = tokens[length - 1]
            new = tokens[:length]
            ends = [place for place, token in enumerate(new) if token in self.config.stop]
            new = new[: ends[0] + 1] if ends else new
            emitted.append(new)
            self._emit(state, new)
        return emitted

    def _emit(self, state: RequestState, tokens: list[int]) -> None:
        room = state.max_new_tokens - len(state.output)
        state.output += tokens[:room]
        if any(token in self.config.stop for token in tokens):
            state.finished = FinishReason.STOP
        elif len(state.output) >= state.max_new_tokens:
            state.finished = FinishReason.LENGTH
        elif state.prefix_len + self.q_len > self.config.max_context:
            state.finished = FinishReason.CONTEXT
        if state.finished:
            self.allocator.free(self._slots.pop(state.rid))
            self.table.free(state.req_pool_idx)
            self.running.remove(state)


def refuse(config: EngineConfig) -> None:
    """Raise ``ValueError`` for settings that steps on the device do not have."""
    found = {
        "temperature": config.sampler.temperature > 0,
        "spine": config.spine,
        "max_depth": config.max_depth is not None,
        "fault": config.stages is not CORRECT,
    }
    for name, given in found.items():
        if given:
            raise ValueError(f"{name}: expected none with steps on the device alone, found one")


def _check_room(config: EngineConfig, target: Decoder) -> None:
    room = target.config.max_position - config.q_len
    if config.max_context > room:
        raise ValueError(
            f"max_context: expected at most {room} (the model's {target.config.max_position} positions less "
            f"{config.q_len} draft rows), found {config.max_context}"
        )
