"""The one sentence at the top of every page: place, expected, found, cause, effect, in words of the
trace.

A pure function of the report; where the sentence names cells of the mask buffer, the caller looks
them up (:func:`workbench.cells.cells_of`). Never a bare OK: what was checked, and what could not
be, is said too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.checks.finding import Effect, Finding, Verdict
from engine.checks.registry import Report

EFFECTS = {
    Effect.OUTPUT: "wrong text",
    Effect.ACCEPTANCE: "fewer tokens accepted",
    Effect.CRASH: "crash",
    Effect.HANG: "ranks hang",
    Effect.LATENT: "no effect yet",
    Effect.NONE: "no effect",
}


class Level(StrEnum):
    """How the line is coloured."""

    FAULT = "fault"
    LATENT = "latent"
    CLEAN = "clean"
    EMPTY = "empty"


@dataclass(frozen=True)
class CellPair:
    """Two cells of the mask buffer: the one that a row reads, and its own."""

    request: str  # whose row it is
    read: int | None
    own: int


@dataclass(frozen=True)
class Headline:
    """The verdict line. ``finding``: the one that it speaks of, for "go there"."""

    level: Level
    sentence: str
    detail: str = ""
    finding: Finding | None = None


def headline(report: Report, cells: CellPair | None = None) -> Headline:
    """``cells``: those of :func:`leading`'s first place, where it lies in the mask."""
    finding = leading(report)
    if report.steps == 0:
        return Headline(Level.EMPTY, "no steps recorded, so nothing was checked")
    if finding is None:
        return Headline(Level.CLEAN, _clean(report))
    if finding.verdict is Verdict.LATENT:
        return Headline(Level.LATENT, sentence(finding), _clean(report), finding)
    return Headline(Level.FAULT, sentence(finding, cells), _scope(report, finding), finding)


def leading(report: Report) -> Finding | None:
    """The finding that the line speaks of: the first cause, else the first latent one."""
    latent = [f for f in report.findings if f.verdict is Verdict.LATENT]
    return next(iter((*report.causes, *latent)), None)


def sentence(finding: Finding, cells: CellPair | None = None) -> str:
    """Place and message of one finding."""
    request = finding.request or (cells.request if cells else None)
    place = [f"step {finding.step}"]
    if finding.rank:
        place.append(f"rank {finding.rank}")
    if request is not None and f"request {request}" not in finding.message:
        place.append(f"request {request}")
    if cells is None:
        return f"{', '.join(place)}: {finding.message}"
    reads = "reads no cell" if cells.read is None else f"reads cell {cells.read}"
    return (
        f"{', '.join(place)}, row {finding.where.row}: {reads} where its own is {cells.own}: "
        f"{finding.message}"
    )


def _scope(report: Report, finding: Finding) -> str:
    steps = len({(f.step, f.rank) for f in report.faults})
    others = len({(f.check, f.diagnosis) for f in report.causes}) - 1
    followed = sum(f.consequence_of is not None for f in report.faults)
    parts = [
        f"effect: {EFFECTS[finding.effect]}",
        f"{steps} of {_count(report.steps, 'step')} at fault",
    ]
    if others:
        parts.append(_count(others, "other cause"))
    if followed:
        parts.append(f"{_count(followed, 'finding')} explained by a cause")
    return " · ".join(parts)


def _clean(report: Report) -> str:
    text = f"{_count(report.steps, 'step')}, {_count(len(report.checks), 'check')}, nothing wrong"
    ties = sum(f.verdict is Verdict.NEAR_TIE for f in report.findings)
    if ties:
        text += f", {_count(ties, 'near-tie')} (numerics, nobody's fault)"
    if not report.skipped:
        return text
    lacking = "; ".join(_lacking(finding) for finding in report.skipped)
    return f"{text}; {_count(len(report.skipped), 'check')} lacked inputs ({lacking})"


def _lacking(finding: Finding) -> str:
    """``kv-commit: needs commit.kv`` from the skipped finding's own message."""
    return finding.message.replace(f"{finding.name} lacked inputs", finding.name)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass(frozen=True)
class CauseGroup:
    """All findings of one cause, as the findings page lists them."""

    check: str
    name: str
    diagnosis: str
    verdict: Verdict
    effect: Effect
    findings: tuple[Finding, ...]
    consequences: tuple[Finding, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps in which it was found."""
        return tuple(sorted({f.step for f in self.findings if f.step is not None}))

    @property
    def title(self) -> str:
        """``width-mismatch · 41 steps · all requests · wrong text``."""
        requests = {f.request for f in self.findings}
        if None in requests:
            who = "all requests"
        else:
            who = ", ".join(sorted(map(str, requests))[:3]) + (" …" if len(requests) > 3 else "")
            who = f"request {who}" if len(requests) == 1 else f"requests {who}"
        parts = [self.diagnosis, _count(len(self.steps), "step"), who, EFFECTS[self.effect]]
        return " · ".join(parts)


HARM = (Effect.OUTPUT, Effect.CRASH, Effect.HANG, Effect.ACCEPTANCE, Effect.LATENT, Effect.NONE)
SEVERITY = (Verdict.FAULT, Verdict.LATENT, Verdict.NEAR_TIE, Verdict.SKIPPED)


def group_causes(findings: Sequence[Finding]) -> list[CauseGroup]:
    """Findings by check and diagnosis, most harmful first; consequences lie with their causes."""
    own: dict[tuple[str, str | None, Verdict], list[Finding]] = {}
    for finding in findings:
        if finding.consequence_of is None:
            own.setdefault((finding.check, finding.diagnosis, finding.verdict), []).append(finding)
    groups = [_group(members, findings) for members in own.values()]
    order = {f.check: i for i, f in reversed(list(enumerate(findings)))}
    return sorted(
        groups,
        key=lambda g: (
            SEVERITY.index(g.verdict),
            HARM.index(g.effect),
            g.steps[:1],
            order[g.check],
        ),
    )


def _group(members: list[Finding], findings: Sequence[Finding]) -> CauseGroup:
    first = members[0]
    places = {(f.step, f.rank, f.request) for f in members}
    steps = {(f.step, f.rank) for f in members if f.request is None}
    return CauseGroup(
        first.check,
        first.name,
        first.diagnosis or first.name,
        first.verdict,
        first.effect,
        tuple(members),
        tuple(
            f
            for f in findings
            if f.consequence_of == first.check
            and ((f.step, f.rank) in steps or (f.step, f.rank, f.request) in places)
        ),
    )
