"""A recording that was read and checked once, with what the pages look up again and again.

Covered: steps by number and rank, findings by step, groups by cause, the verdict, what each request wrote. Everything
that takes time in proportion to the recording is done once. Not covered: when it is read, and who waits
(:mod:`workbench.loading`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from engine.checks.context import StepContext
from engine.checks.finding import Finding, Verdict
from engine.checks.registry import Report, check_trace
from engine.step import VerifyStep
from engine.trace.errors import TraceFormatError
from engine.trace.header import TraceHeader
from engine.trace.reader import Trace
from workbench.causes import CauseGroup, group_causes, kept
from workbench.cells import cells_of, place_in
from workbench.figures.strip import StepBar
from workbench.finding_filter import FindingFilter
from workbench.verdict import Headline, headline, leading

if TYPE_CHECKING:
    from engine.decoding.acceptance_curve import Curve

KEPT_CONTEXTS = 24  # decoded steps with their masks
KEPT_FILTERS = 8
CURVE_STEPS = 500  # that the curve of budgets is computed from

Key = tuple[int, int]  # step, rank
ProgressFn = Callable[[int, int], None]  # steps checked so far, of how many


@dataclass(frozen=True)
class Emitted:
    """What one step wrote of one request. ``root`` None: the tree's tokens were not recorded."""

    rid: str
    root: int | None
    tokens: tuple[int, ...] | None  # None: not recorded


class Loaded:
    """A trace with its report. Steps are decoded under a lock: the file handle is shared."""

    def __init__(self, trace: Trace, progress: ProgressFn | None = None):
        self.trace = trace
        self._lock = threading.RLock()
        self._contexts: OrderedDict[int, StepContext] = OrderedDict()
        self._kept: OrderedDict[FindingFilter, list[CauseGroup]] = OrderedDict()
        self._curves: dict[int, Curve] = {}
        self.keys: list[Key] = []
        self._places: dict[Key, int] = {}
        self._bars: dict[Key, StepBar] = {}
        self._emitted: dict[Key, tuple[Emitted, ...]] = {}
        self._texts: dict[int, str] = {}
        self.report: Report = check_trace(self._read(progress))
        self.findings_by_step: dict[Key, list[Finding]] = {}
        for finding in self.report.findings:
            if finding.step is not None and finding.rank is not None:
                self.findings_by_step.setdefault((finding.step, finding.rank), []).append(finding)

    def _read(self, progress: ProgressFn | None) -> Iterator[VerifyStep]:
        for position in range(total := len(self.trace)):
            step = self.trace.step(position)
            self._note(position, step)
            yield step
            if progress is not None:
                progress(position + 1, total)

    def _note(self, position: int, step: VerifyStep) -> None:
        key, lengths = (step.step, step.rank), step.outcome.accept_length
        self.keys.append(key)
        self._places.setdefault(key, position)
        accepted = None if lengths is None else int(lengths.sum())
        self._bars[key] = StepBar(step.step, accepted, step.raw_bs, 0)
        self._emitted.setdefault(key, tuple(_emitted(step)))
        self._texts.update(step.workbench.token_texts or {})

    @property
    def header(self) -> TraceHeader:
        """What the recording says about itself."""
        return self.trace.header

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks that recorded a step."""
        return sorted({rank for _, rank in self.keys})

    @property
    def texts(self) -> dict[int, str]:
        """Texts of all tokens that the recording names."""
        return self._texts

    @cached_property
    def _steps(self) -> dict[int, list[int]]:
        return {r: sorted({step for step, rank in self.keys if rank == r}) for r in self.ranks}

    def steps_of(self, rank: int) -> list[int]:
        """Step numbers of a rank, in order."""
        return self._steps[rank]

    @cached_property
    def all_steps(self) -> list[int]:
        """Step numbers of all ranks, in order."""
        return sorted({step for step, _ in self.keys})

    def has(self, step: int, rank: int) -> bool:
        """Whether a rank recorded a step."""
        return (step, rank) in self._places

    def position(self, step: int, rank: int) -> int:
        """Where a step lies in the file."""
        return self._places[step, rank]

    def step(self, position: int) -> VerifyStep:
        """One step. Raises ``TraceFormatError``, also where the file is gone."""
        with self._lock:
            try:
                return self.trace.step(position)
            except OSError as error:
                raise TraceFormatError(error.strerror or str(error), str(self.trace.path)) from None

    def ahead(self, step: int, rank: int, count: int) -> list[VerifyStep]:
        """A step of a rank and those after it, ``count`` at most."""
        numbers = [n for n in self.steps_of(rank) if n >= step][:count]
        return [self.step(self.position(n, rank)) for n in numbers]

    def curve(self, rank: int) -> Curve:
        """What other budgets would have accepted, from the first steps of a rank."""
        from engine.decoding.acceptance_curve import curve_of  # slow to import: torch

        with self._lock:
            if rank not in self._curves:
                first = self.steps_of(rank)[:CURVE_STEPS]
                steps = self.ahead(first[0], rank, len(first)) if first else []
                self._curves[rank] = curve_of(steps)
            return self._curves[rank]

    def context(self, step: int, rank: int) -> StepContext:
        """One step with its oracle and the step before."""
        position = self.position(step, rank)
        with self._lock:
            if position not in self._contexts:
                before = self._places.get((step - 1, rank))
                previous = None if before is None else self.step(before)
                self._contexts[position] = StepContext(self.step(position), previous)
                while len(self._contexts) > KEPT_CONTEXTS:
                    self._contexts.popitem(last=False)
            return self._contexts[position]

    def emitted(self, step: int, rank: int) -> tuple[Emitted, ...]:
        """What a step wrote, request by request; empty where there is no such step."""
        return self._emitted.get((step, rank), ())

    def live(self, step: int | None, rank: int | None) -> tuple[str, ...]:
        """Ids of the requests of a step; empty where there is no such step."""
        return tuple(e.rid for e in self._emitted.get((step, rank), ()))  # type: ignore[arg-type]

    @cached_property
    def headline(self) -> Headline:
        """The verdict of the whole recording."""
        finding = leading(self.report)
        if finding is None or finding.step is None or finding.rank is None:
            return headline(self.report)
        return headline(self.report, cells_of(finding, self.context(finding.step, finding.rank)))

    def place_of(self, finding: Finding) -> tuple[str | None, int | None]:
        """Request and node that a finding first shows at; what it says itself where its step is not there (any
        more).
        """
        own = finding.request, finding.where.node
        if finding.step is None or finding.rank is None or not self.has(finding.step, finding.rank):
            return own
        try:
            return place_in(finding, self.context(finding.step, finding.rank))
        except TraceFormatError:
            return own

    @cached_property
    def groups(self) -> list[CauseGroup]:
        """All findings by their cause, most harmful first."""
        return group_causes(self.report.findings)

    def kept(self, wanted: FindingFilter) -> list[CauseGroup]:
        """The groups with those of their findings that match a filter."""
        if wanted.is_empty:
            return self.groups
        with self._lock:
            if wanted not in self._kept:
                self._kept[wanted] = kept(
                    self.groups, lambda f: wanted.matches(f, self.live(f.step, f.rank))
                )
                while len(self._kept) > KEPT_FILTERS:
                    self._kept.popitem(last=False)
            return self._kept[wanted]

    @cached_property
    def requests(self) -> tuple[str, ...]:
        """Ids of all requests, in order of time."""
        return tuple(dict.fromkeys(e.rid for step in self._emitted.values() for e in step))

    @cached_property
    def _fault_counts(self) -> dict[Key, int]:
        counts: dict[Key, int] = {}
        for key, findings in self.findings_by_step.items():
            if faults := sum(f.verdict is Verdict.FAULT for f in findings):
                counts[key] = faults
        return counts

    def faulty_steps(self, rank: int) -> list[int]:
        """Steps of a rank with a fault, in order."""
        return sorted(step for step, other in self._fault_counts if other == rank)

    def bars(self, rank: int) -> list[StepBar]:
        """The strip of one rank."""
        bars = (self._bars[step, rank] for step in self.steps_of(rank))
        counts = self._fault_counts
        return [
            StepBar(b.step, b.accept_length, b.requests, counts.get((b.step, rank), 0))
            for b in bars
        ]


def _emitted(step: VerifyStep) -> Iterator[Emitted]:
    written = step.outcome.emitted
    for i, request in enumerate(step.requests):
        tokens = request.tree.tokens
        root = None if tokens is None or not len(tokens) else int(tokens[0])
        own = None if written is None or i >= len(written) else tuple(map(int, written[i]))
        yield Emitted(request.rid, root, own)
