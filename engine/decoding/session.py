"""One run from prompts to a recording: plain decoding first, then the chosen method, step by step, as events.

The caller draws events and may stop at any time by closing the generator: every step that was recorded stays on disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from engine.decoding.accept import Sampler
from engine.decoding.engine import Engine, RequestState, StepResult
from engine.decoding.events import (
    Event,
    Finished,
    PlainTokens,
    Progress,
    RequestSummary,
    RunSummary,
    StepRecorded,
    TreeTokens,
)
from engine.decoding.plain import decode_plain
from engine.decoding.record import Recorder
from engine.decoding.reference import ReferenceModel
from engine.decoding.run_settings import RunSettings
from engine.decoding.settings import Backend, EngineConfig, Graph
from engine.drafters.base import Drafter
from engine.drafters.catalog import dflash_model, make_drafter
from engine.faults import inject
from engine.models.catalog import Target
from engine.models.device import find_device, find_dtype, synchronize
from engine.trace.header import PromptRecord, TraceHeader
from engine.trace.writer import TraceWriter

if TYPE_CHECKING:
    from engine.graphs.recorded import RecordedEngine

KEPT_CANDIDATES = 64  # of each draft position that a recording holds


def run(
    settings: RunSettings, target: Target, *, trace_path: Path | None = None
) -> Iterator[Event]:
    """Run to the end, or until closed.

    Raises ``ValueError`` for prompts that do not fit the model, and for a target that was loaded elsewhere or otherwise
    than the settings say.
    """
    yield from _Run(settings, target, trace_path).events()


@dataclass
class _Run:
    settings: RunSettings
    target: Target
    trace_path: Path | None
    plain: dict[str, list[int]] = field(default_factory=dict)
    accept_lengths: dict[str, list[int]] = field(default_factory=dict)
    plain_seconds: float = 0.0
    tree_seconds: float = 0.0
    steps: int = 0

    def __post_init__(self) -> None:
        encode = self.target.tokenizer.encode_chat
        self.prompts = {f"r{i}": encode(text) for i, text in enumerate(self.settings.prompts)}
        self.texts = dict(zip(self.prompts, self.settings.prompts, strict=True))
        self.sampler = Sampler(self.settings.temperature, self.settings.seed)
        self.stop = self.target.model.config.eos_token_ids

    def _loaded_as_said(self) -> None:
        """A recording's command line must repeat it."""
        model, settings = self.target.model, self.settings
        said = find_device(settings.device), find_dtype(settings.dtype)
        if (model.device, model.dtype) != said:
            raise ValueError(
                f"target: expected it on {said[0]} in {settings.dtype}, found it on {model.device} in {model.dtype}"
            )

    def events(self) -> Iterator[Event]:
        self._loaded_as_said()
        config = self._config()
        for rid in self.prompts:
            yield from self._decode_plain(rid)
        outputs = dict(self.plain)
        if self.settings.method != "autoregressive":
            states: dict[str, RequestState] = {}
            yield from self._decode_tree(config, states)
            outputs = {rid: state.output for rid, state in states.items()}
        yield Finished(self._summary(outputs))

    def _config(self) -> EngineConfig:
        settings = self.settings
        chain = settings.method == "chain"
        longest = max(map(len, self.prompts.values())) + settings.max_new_tokens
        budget = settings.block_size - 1 if chain else settings.budget
        config = EngineConfig(
            budget=budget,
            topk=1 if chain else settings.topk,
            block_size=settings.block_size,
            max_depth=settings.max_depth,
            spine=settings.spine and not chain,
            kept_candidates=KEPT_CANDIDATES,
            sampler=self.sampler,
            graph=Graph(settings.mode),
            backend=Backend(settings.backend),
            max_context=longest + budget + 1,
            max_requests=len(self.prompts),
            stop=self.stop,
            stages=inject(settings.fault, replay=settings.mode == Graph.REPLAY),
        )
        captured_bs = settings.captured_bs or power_of_two(len(self.prompts))
        if settings.captured_bs is not None or captured_bs > max(config.captured_bs):
            config = replace(config, captured_bs=(captured_bs,))
        if config.graph is Graph.REPLAY:
            config.captured_for(len(self.prompts))
        self._fits(config)
        return config

    def _fits(self, config: EngineConfig) -> None:
        """Refuse a run whose last step would not fit the model's positions."""
        limit, need = self.target.model.config.max_position, config.max_context + config.q_len
        if need > limit:
            raise ValueError(
                f"prompt + max_new_tokens + two steps of {config.q_len} rows: expected at most {limit} positions, "
                f"found {need}"
            )

    def _decode_plain(self, rid: str) -> Iterator[Event]:
        tokens: list[int] = []
        started = time.perf_counter()
        stream = decode_plain(
            self.target.model,
            rid,
            self.prompts[rid],
            self.settings.max_new_tokens,
            sampler=self.sampler,
            stop=self.stop,
        )
        for token in stream:
            self.plain_seconds += time.perf_counter() - started
            tokens.append(token)
            yield PlainTokens(rid, tuple(tokens), self._text(tokens))
            started = time.perf_counter()
        self.plain[rid] = tokens

    def _text(self, tokens: list[int]) -> str:
        return self.target.tokenizer.decode([t for t in tokens if t not in self.stop])

    def _decode_tree(
        self, config: EngineConfig, states: dict[str, RequestState]
    ) -> Iterator[Event]:
        engine = self._engine(config)
        reference = ReferenceModel(self.target.model) if self.settings.reference else None
        recorder = Recorder(
            self.target.model,
            config,
            self.target.name,
            self.settings.fault,
            self.target.tokenizer.token_text,
        )
        with ExitStack() as stack:
            writer = None
            if self.trace_path is not None:
                writer = stack.enter_context(TraceWriter(self.trace_path, self._header()))
            for rid, prompt in self.prompts.items():
                yield Progress(f"prefill {rid}", len(states) / len(self.prompts))
                states[rid] = self._add(engine, reference, rid, prompt)
            while engine.running:
                result = self._timed_step(engine)
                step = recorder.record(self.steps, result, self._check(reference, result))
                if writer is not None:
                    writer.write(step)
                self.steps += 1
                yield StepRecorded(step)
                for request, path in zip(result.requests, result.accepted, strict=True):
                    self.accept_lengths.setdefault(request.rid, []).append(len(path))
                    output = states[request.rid].output
                    yield TreeTokens(request.rid, tuple(output), self._text(output))

    def _engine(self, config: EngineConfig) -> Engine | RecordedEngine:
        if config.backend is not Backend.DEVICE:
            return Engine(self.target.model, self._drafter(config), config)
        from engine.graphs.recorded import RecordedEngine  # brings Triton

        drafter = dflash_model(self.settings.drafter, self.target)
        replay = config.graph is Graph.REPLAY
        if not replay:
            config = replace(config, captured_bs=tuple(range(1, len(self.prompts) + 1)))
        graphs = replay and self.target.model.device.type == "cuda"
        return RecordedEngine(self.target.model, drafter, config, graphs=graphs)

    def _drafter(self, config: EngineConfig) -> Drafter:
        return make_drafter(
            self.settings.drafter,
            self.target,
            config.block_size,
            accuracy=self.settings.accuracy,
            sampler=self.sampler,
            max_context=config.max_context + config.block_size,
        )

    def _add(
        self,
        engine: Engine | RecordedEngine,
        reference: ReferenceModel | None,
        rid: str,
        prompt: list[int],
    ) -> RequestState:
        if reference is not None:
            reference.start(rid, prompt)
        started = time.perf_counter()
        state = engine.add(rid, prompt, self.settings.max_new_tokens)
        self.tree_seconds += time.perf_counter() - started
        return state

    def _timed_step(self, engine: Engine | RecordedEngine) -> StepResult:
        started = time.perf_counter()
        result = engine.step()
        synchronize(self.target.model.device)
        self.tree_seconds += time.perf_counter() - started
        return result

    def _check(self, reference: ReferenceModel | None, result: StepResult) -> list[Tensor] | None:
        """The reference's logits of every node, and its cache brought up to the accepted paths."""
        if reference is None:
            return None
        logits = []
        for request, path in zip(result.requests, result.accepted, strict=True):
            logits.append(reference.verify(request.rid, request.tree, request.prefix_len))
            reference.commit(request.rid, path)
        return logits

    def _header(self) -> TraceHeader:
        prompts = tuple(
            PromptRecord(
                rid,
                self.texts[rid],
                tuple(tokens),
                tuple(self.plain[rid]),
                self._text(self.plain[rid]),
            )
            for rid, tokens in self.prompts.items()
        )
        return TraceHeader(
            created_by="ddtree run",
            command=self.settings.command(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            model=self.target.name,
            drafter=self.settings.drafter,
            fault=self.settings.fault,
            prompts=prompts,
        )

    def _summary(self, outputs: dict[str, list[int]]) -> RunSummary:
        requests = tuple(
            RequestSummary(
                rid,
                self.texts[rid],
                tuple(self.plain[rid]),
                tuple(tokens),
                self._text(self.plain[rid]),
                self._text(tokens),
                first_difference(self.plain[rid], tokens),
                tuple(self.accept_lengths.get(rid, ())),
            )
            for rid, tokens in outputs.items()
        )
        return RunSummary(
            requests, self.trace_path, self.plain_seconds, self.tree_seconds, self.steps
        )


def power_of_two(count: int) -> int:
    """The smallest power of two that is not below ``count``."""
    return 1 << (count - 1).bit_length()


def first_difference(left: list[int], right: list[int]) -> int | None:
    """Index of the first token that differs, or at which one text ends before the other; None if they are equal."""
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return min(len(left), len(right)) if len(left) != len(right) else None
