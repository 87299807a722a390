"""Cells on this project's own engine: each is run twice beside plain decoding, the first time recorded and checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.checks.registry import TraceChecker
from engine.checks.trace_checker import Report as CheckReport
from engine.decoding.accept import Sampler
from engine.decoding.events import (
    Finished,
    PlainTokens,
    RequestSummary,
    RunSummary,
    StepRecorded,
    TreeTokens,
)
from engine.decoding.parting import Parting, parting
from engine.decoding.run_settings import RunSettings
from engine.decoding.session import first_difference, run
from engine.faults.injector import INJECTORS
from engine.isolate.cell import Cell
from engine.isolate.checked import Checked
from engine.isolate.experiment import LocalSubject
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Compared, Measured
from engine.isolate.recorded import free_place
from engine.isolate.subject import Report
from engine.models.catalog import Target, load_target
from engine.models.device import find_device, find_dtype

RUNS = 2
TRIED = 8  # tokens that are decoded to learn how long a cell takes

Load = Callable[..., Target]


class LocalMeasure:
    """Measures cells with one loaded model. Raises ``ValueError`` at once for cells that cannot be run."""

    def __init__(
        self, matrix: Matrix, subject: LocalSubject, traces: Path, *, load: Load | None = None
    ) -> None:
        self.matrix, self.subject, self.traces = matrix, subject, traces
        self._load = load or load_target
        self._target: Target | None = None
        for cell in matrix:
            try:
                settings_of(matrix, subject, cell)
            except ValueError as error:
                raise ValueError(f"cell {cell.key}: {error}") from None

    def expect(self, cells: Sequence[Cell]) -> None:
        """Nothing is begun ahead."""

    def measure(self, cell: Cell, report: Report) -> Measured:
        """One cell; what the engine raises is its error."""
        target = self.target(report)
        settings = settings_of(self.matrix, self.subject, cell)
        started = time.perf_counter()
        trace = free_place(self.traces, cell.key) if self.subject.checks else None
        try:
            runs = [
                _run(settings, target, trace, report, 0),
                _run(replace(settings, reference=False), target, None, report, 1),
            ]
        except (ValueError, IndexError, RuntimeError, ArithmeticError) as error:
            words = f"{type(error).__name__}: {error}"
            kept = trace.name if trace is not None and trace.exists() else None
            return Measured(cell, seconds=time.perf_counter() - started, trace=kept, error=words)
        summaries = [done.summary for done in runs]
        requests = tuple(
            _compared(target, settings, *pair)
            for pair in zip(*(summary.requests for summary in summaries), strict=True)
        )
        done = Measured(
            cell,
            requests,
            time.perf_counter() - started,
            _rate(summaries, "tree"),
            _rate(summaries, "plain"),
        )
        if trace is None:
            return done
        return Checked.of(runs[0].checks).beside(done, trace.name)

    def seconds_of(self, cell: Cell, report: Report) -> float:
        """How long a cell will take, from two short runs: what a run costs at all, and what a token costs."""
        target, whole = self.target(report), settings_of(self.matrix, self.subject, cell)
        few, more = (min(n, whole.max_new_tokens) for n in (2, 2 + TRIED))
        _run(replace(whole, max_new_tokens=few), target, None, report, 0)  # loads the drafter
        spent = []
        for tokens in (few, more):
            started = time.perf_counter()
            _run(replace(whole, max_new_tokens=tokens), target, None, report, 0)
            spent.append(time.perf_counter() - started)
        each = max(0.0, spent[1] - spent[0]) / max(1, more - few)
        return RUNS * (spent[0] + each * (whole.max_new_tokens - few))

    def target(self, report: Report) -> Target:
        """The model, loaded once."""
        if self._target is None:
            subject = self.subject
            self._target = self._load(
                subject.model,
                dtype=find_dtype(subject.dtype),
                device=find_device(subject.device),
                progress=report,
            )
        return self._target

    def close(self) -> None:
        """Nothing was started."""


def settings_of(matrix: Matrix, subject: LocalSubject, cell: Cell) -> RunSettings:
    """The run of a cell. A fault that only a replay can have is not in the cells without graphs.

    Raises ``ValueError`` as :class:`RunSettings` does.
    """
    fault = subject.fault
    known = INJECTORS.get(fault or "")
    if known is not None and known.needs_replay and not cell.graphs:
        fault = None
    return RunSettings(
        prompts=matrix.batch_of(cell),
        model=subject.model,
        drafter=subject.drafter,
        accuracy=subject.accuracy,
        budget=cell.budget,
        topk=cell.topk,
        block_size=subject.block_size,
        spine=subject.spine,
        temperature=cell.temperature,
        seed=cell.seed,
        mode="replay" if cell.graphs else "eager",
        captured_bs=_captured_bs(subject, cell),
        fault=fault,
        max_new_tokens=matrix.max_new_tokens,
        backend=subject.backend,
        reference=subject.checks and subject.backend != "device",
        device=subject.device,
        dtype=subject.dtype,
    )


def _captured_bs(subject: LocalSubject, cell: Cell) -> int | None:
    if not cell.graphs or subject.captured_bs is None:
        return None
    if subject.captured_bs < cell.batch:
        raise ValueError(
            f"captured_bs: expected at least {cell.batch}, found {subject.captured_bs}"
        )
    return subject.captured_bs


@dataclass(frozen=True)
class _Ran:
    summary: RunSummary
    checks: CheckReport


def _run(
    settings: RunSettings, target: Target, trace: Path | None, report: Report, number: int
) -> _Ran:
    checker, done = TraceChecker(), {"plain": 0, "tree": 0}
    most = 2 * len(settings.prompts) * settings.max_new_tokens
    counts: Counter[tuple[str, str]] = Counter()
    events = run(settings, target, trace_path=trace)
    try:
        for event in events:
            if isinstance(event, StepRecorded) and trace is not None:
                checker.feed(event.step)
            elif isinstance(event, PlainTokens | TreeTokens):
                kind = "plain" if isinstance(event, PlainTokens) else "tree"
                counts[kind, event.rid] = len(event.tokens)
                done[kind] = sum(n for (of, _), n in counts.items() if of == kind)
                share = min(1.0, (done["plain"] + done["tree"]) / most)
                words = f"run {number + 1} of {RUNS}, {kind}: {done[kind]} tokens"
                report(words, (number + share) / RUNS)
            elif isinstance(event, Finished):
                return _Ran(event.summary, checker.report())
    finally:
        events.close()  # type: ignore[attr-defined]
    raise RuntimeError("a run ended without its summary")


def _compared(
    target: Target, settings: RunSettings, first: RequestSummary, second: RequestSummary
) -> Compared:
    """One request of both runs, beside the first plain text."""
    plain = list(first.plain_tokens)
    shown = min((first, second), key=lambda r: _place(first_difference(plain, list(r.tree_tokens))))
    tokens = list(shown.tree_tokens)
    parted = _parted(target, settings, first, tokens)
    again = _parted(target, settings, first, list(second.plain_tokens))
    lengths = shown.accept_lengths
    return Compared(
        prompt=first.prompt,
        text=shown.tree_text,
        plain_text=first.plain_text,
        tokens=tuple(tokens),
        plain_tokens=tuple(plain),
        first_difference=first_difference(plain, tokens),
        margin=None if parted is None else parted.margin,
        near_tie=None if parted is None else parted.near_tie,
        repeats=first.tree_tokens == second.tree_tokens,
        plain_parts=first_difference(plain, list(second.plain_tokens)),
        plain_near_tie=None if again is None else again.near_tie,
        accept_length=sum(lengths) / len(lengths) if lengths else None,
    )


def _place(difference: int | None) -> float:
    return float("inf") if difference is None else difference


def _parted(
    target: Target, settings: RunSettings, request: RequestSummary, tokens: list[int]
) -> Parting | None:
    prompt = target.tokenizer.encode_chat(request.prompt)
    sampler = Sampler(settings.temperature, settings.seed)
    return parting(target.model, prompt, request.plain_tokens, tokens, sampler, request.rid)


def _rate(summaries: list[RunSummary], kind: str) -> float | None:
    """Tokens a second over both runs."""
    tokens = sum(len(getattr(r, f"{kind}_tokens")) for s in summaries for r in s.requests)
    seconds = sum(getattr(s, f"{kind}_seconds") for s in summaries)
    return tokens / seconds if seconds > 0 else None
