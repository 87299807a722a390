"""GraphEngine: greedy decoding whose steps run on the device alone, plain or with a DFlash drafter.

The host adds requests, reads what was accepted after each step (one copy), and ends requests; nothing else crosses, and
in graphs a step does not wait for the one before to be read.
Steps cover padded batch sizes (``EngineConfig.captured_bs``), each captured once as CUDA graphs. On a CPU, and with
``graphs`` off, the same functions run without a graph.

Covered: several requests, stop tokens, finish by length and by context. Not covered: temperatures above 0, spines,
depth caps and injected faults, which the eager engine (:mod:`engine.decoding.engine`) has; each is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decoding.engine import RequestState
from engine.decoding.settings import EngineConfig, FinishReason
from engine.decoding.stages import CORRECT
from engine.graphs.drafting import DraftStep
from engine.graphs.forward import decoder_stack
from engine.graphs.layout import PADDED_SEQ_LEN
from engine.graphs.prefill import Prefill
from engine.graphs.step import DeviceStep, Part
from engine.models.decoder import Decoder
from engine.models.device import HOST, to_device, to_host
from engine.models.dflash import DFlash
from engine.models.kv_pool import KVPool, ReqToTokenPool, SlotAllocator


@dataclass(frozen=True, eq=False)
class _Launched:
    """A step that was launched, and what of it the host reads once it is done."""

    states: list[RequestState]
    said: Tensor  # int64 [captured, 1 + steps] on the host
    done: torch.cuda.Event | None  # None: it is


class GraphEngine:
    """Requests of one run. A request holds slots for all it may commit from its start to its end."""

    def __init__(
        self,
        target: Decoder,
        drafter: DFlash | None,
        config: EngineConfig,
        *,
        graphs: bool | None = None,
        overlap: bool | None = None,
    ) -> None:
        """``graphs``: capture steps as CUDA graphs; None: where the target is on a GPU. Raises ``ValueError``.

        ``overlap``: launch a step before the one before it is read; None: in graphs.
        """
        refuse(config)
        config.check_room(target.config.max_position)
        self.target, self.config = target, config
        self.graphs = target.device.type == "cuda" if graphs is None else graphs
        if self.graphs and target.device.type != "cuda":
            raise ValueError(f"graphs: expected the target on a GPU, found it on {target.device}")
        self.overlap = self.graphs if overlap is None else overlap
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
        self.prefill = Prefill(target, self.stack, self.drafter, self.pool, graphs=self.graphs)
        self.running: list[RequestState] = []
        self._slots: dict[str, Tensor] = {}
        self.steps: dict[int, DeviceStep] = {}
        self._ahead: _Launched | None = None  # in flight, not read
        # What steps in graphs are read through: two for each batch size, in turn.
        self._pinned: dict[tuple[int, bool], Tensor] = {}
        self._turn = False
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
        self.config.check_prompt(rid, len(prompt), max_new_tokens)
        row = self.table.alloc()
        slots = self.allocator.alloc(self.table.req_to_token.shape[1])
        there = to_device(slots, self.target.device)
        self.table.req_to_token[row] = there.to(torch.int32)
        state = RequestState(rid, tuple(prompt), max_new_tokens, row, prefix_len=len(prompt))
        self._slots[rid] = slots
        state.root = self.prefill.run(prompt, there[: len(prompt)])
        self.running.append(state)
        self._laid_out = None  # a name may come back
        self._emit(state, [state.root])
        return state

    @torch.inference_mode()
    def step(self) -> dict[str, list[int]]:
        """One step of every running request; the tokens that each emits. Raises ``RuntimeError`` if none is running.

        With ``overlap`` the next step is launched before this one is read, as long as the requests stay the same: the
        device does not wait for the host. What it computes for a request that ends meanwhile is dropped.
        """
        if not self.running:
            raise RuntimeError("step: no request is running")
        current = self._launch() if self._ahead is None else self._ahead
        self._ahead = None
        if self.overlap and current.states == self.running:
            self._ahead = self._launch()
        return self._finish(current)

    @torch.inference_mode()
    def verify(self) -> DeviceStep:
        """The first part of a step, up to the accepted paths. The buffers hold it until the next step."""
        if self._ahead is not None:
            self._finish(self._ahead)
            self._ahead = None
        step = self._ready("verify", "commit")
        step.run("verify")
        return step

    @torch.inference_mode()
    def commit(self, step: DeviceStep) -> dict[str, list[int]]:
        """The second part: memory moved, requests moved on; the tokens that each emits."""
        step.run("commit")
        return self._finish(self._reading(step))

    def _launch(self) -> _Launched:
        """A whole step, and the copy of what it says, in flight."""
        step = self._ready("whole")
        step.run("whole")
        return self._reading(step)

    def _reading(self, step: DeviceStep) -> _Launched:
        """Start the copy of what a step says to the host."""
        states = list(self.running)
        if not self.graphs:
            return _Launched(states, to_host(step.said).clone(), None)
        self._turn = not self._turn
        pinned = self._pinned.get((len(step.said), self._turn))
        if pinned is None:
            pinned = torch.empty(step.said.shape, dtype=torch.int64, device=HOST, pin_memory=True)
            self._pinned[len(step.said), self._turn] = pinned
        pinned.copy_(step.said, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        return _Launched(states, pinned, done)

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

    def _finish(self, launched: _Launched) -> dict[str, list[int]]:
        """Wait for what a step accepted, and move on the requests that are still running."""
        if launched.done is not None:
            launched.done.synchronize()
        emitted = {}
        for state, (length, *tokens) in zip(launched.states, launched.said.tolist(), strict=False):
            if state.finished:
                continue
            state.prefix_len += length
            state.root = tokens[length - 1]
            new = tokens[:length]
            ends = [place for place, token in enumerate(new) if token in self.config.stop]
            emitted[state.rid] = new[: ends[0] + 1] if ends else new
            self._emit(state, emitted[state.rid])
        if not self.running:
            self._ahead = None  # whatever is in flight is nobody's
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
