"""A trace through the checks, one step at a time: the step before, damaged caches and other ranks are kept in mind."""

from __future__ import annotations

from dataclasses import dataclass

from engine.checks import ranks
from engine.checks.blast_radius import damaged_requests
from engine.checks.context import Damage, Spec, StepContext
from engine.checks.finding import Finding, Verdict
from engine.checks.judge import judge
from engine.checks.rank_groups import RankGroups
from engine.checks.table import CHECKS
from engine.step import VerifyStep

MAX_DAMAGED = 10_000  # requests of a rank that are kept in mind when findings are forgotten


@dataclass(frozen=True)
class Report:
    """What the checks say about a trace."""

    findings: tuple[Finding, ...]  # in time order; without the skipped ones
    skipped: tuple[Finding, ...]  # once a trace
    steps: int
    checks: tuple[str, ...]  # names of the checks that ran on at least one step

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Everything at fault, consequences included."""
        return tuple(f for f in self.findings if f.verdict is Verdict.FAULT)

    @property
    def causes(self) -> tuple[Finding, ...]:
        """Faults that no earlier finding explains."""
        return tuple(f for f in self.findings if f.is_cause)


class TraceChecker:
    """Checks steps as they come; what :func:`check_trace` does, one step at a time."""

    def __init__(self) -> None:
        self._findings: list[list[Finding]] = []  # of each step fed
        self._ran: set[str] = set()
        self._first: VerifyStep | None = None
        self._steps = 0
        self._recent: dict[int, list[StepContext]] = {}  # by rank: the last two step numbers
        self._damaged: dict[int, dict[str, Damage]] = {}
        self._ranks = RankGroups()

    def feed(self, step: VerifyStep) -> list[Finding]:
        """Findings of the next step in order of time."""
        context = self.judged(step)
        self._ranks.add(context, context.found)
        return [*context.found, *self._ranks.take_complete(step)]

    def judged(self, step: VerifyStep) -> StepContext:
        """The next step in order of time with its findings; ranks are not compared."""
        seen = self._recent.get(step.rank, [])
        recent = [other for other in seen if other.step.step >= step.step - 1]
        damaged, before = self._damaged.setdefault(step.rank, {}), _before(step, recent)
        previous = None if before is None else before.step
        context = StepContext(step, previous, [], dict(damaged), before)
        findings = judge(context)
        for rid, check in damaged_requests(context).items():
            damaged.setdefault(rid, Damage(check, step.step))
        self._findings.append(findings)
        self._ran |= {
            spec.id
            for spec in CHECKS
            if spec.id not in self._ran and not spec.needs_ranks and spec.can_run(step)
        }
        self._first = self._first or step
        self._recent[step.rank] = [*recent, context.by_itself()]
        self._steps += 1
        return context

    def forget(self) -> None:
        """Drop findings that were handed out: whoever follows for days has them. :meth:`report` is without them."""
        self._findings, self._ranks = [], RankGroups()
        for damaged in self._damaged.values():
            for rid in list(damaged)[: max(0, len(damaged) - MAX_DAMAGED)]:
                del damaged[rid]

    def report(self) -> Report:
        """Everything so far."""
        found = self._ranks.merged(self._findings)
        ran = self._ran | ({ranks.ID} if self._ranks.compared else set())
        lacking = [spec for spec in CHECKS if spec.id not in ran]
        skipped = tuple(_skipped(spec, self._first) for spec in lacking if self._first)
        names = tuple(spec.name for spec in CHECKS if spec.id in ran)
        return Report(found, skipped, self._steps, names)


def _before(step: VerifyStep, recent: list[StepContext]) -> StepContext | None:
    """The record of the step before that shares most requests with this one."""
    rids = {request.rid for request in step.requests}
    shared = [
        (sum(request.rid in rids for request in other.step.requests), other)
        for other in recent
        if other.step.step == step.step - 1
    ]
    count, other = max(shared, key=lambda pair: pair[0], default=(0, None))
    return other if count else None


def _skipped(spec: Spec, step: VerifyStep) -> Finding:
    lacking = [" and ".join(spec.missing(step, part)) for part in spec.parts]
    if spec.needs_ranks:
        lacking = ["several ranks"]
    return Finding(
        check=spec.id,
        name=spec.name,
        verdict=Verdict.SKIPPED,
        step=None,
        rank=None,
        request=None,
        diagnosis=None,
        message=f"{spec.name} lacked inputs: needs {' or '.join(dict.fromkeys(lacking))}",
    )
