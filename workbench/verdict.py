"""The one sentence at the top of every page: place, expected, found, cause, effect, in words of the
trace.

A pure function of the report; where the sentence names cells of the mask buffer, the caller looks
them up (:func:`workbench.cells.cells_of`). Never a bare OK: what was checked, and what could not
be, is said too.
"""

from __future__ import annotations

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
    cause: str = ""  # the diagnosis and what to make of it
    finding: Finding | None = None


def headline(report: Report, cells: CellPair | None = None) -> Headline:
    """``cells``: those of :func:`leading`'s first place, where it lies in the mask."""
    finding = leading(report)
    if report.steps == 0:
        return Headline(Level.EMPTY, "no steps recorded, so nothing was checked")
    if finding is None:
        return Headline(Level.CLEAN, _clean(report))
    if finding.verdict is Verdict.LATENT:
        return Headline(
            Level.LATENT, sentence(finding), _clean(report), cause_words(finding), finding
        )
    scope = _scope(report, finding)
    return Headline(Level.FAULT, sentence(finding, cells), scope, cause_words(finding), finding)


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


def cause_words(finding: Finding) -> str:
    """The diagnosis and what to make of it."""
    return ": ".join(part for part in (finding.diagnosis, finding.hint) if part)


def _scope(report: Report, finding: Finding) -> str:
    steps = len({(f.step, f.rank) for f in report.faults})
    others = len({(f.check, f.diagnosis) for f in report.causes}) - 1
    followed = sum(f.consequence_of is not None for f in report.faults)
    parts = [
        f"effect: {EFFECTS[finding.effect]}",
        f"{steps:,} of {plural(report.steps, 'step')} at fault",
    ]
    if others:
        parts.append(plural(others, "other cause"))
    if followed:
        parts.append(f"{plural(followed, 'finding')} explained by a cause")
    return " · ".join(parts)


def _clean(report: Report) -> str:
    text = f"{plural(report.steps, 'step')}, {plural(len(report.checks), 'check')}, nothing wrong"
    ties = sum(f.verdict is Verdict.NEAR_TIE for f in report.findings)
    if ties:
        text += f", {plural(ties, 'near-tie')} (numerics, nobody's fault)"
    if not report.skipped:
        return text
    lacking = "; ".join(_lacking(finding) for finding in report.skipped)
    return f"{text}; {plural(len(report.skipped), 'check')} lacked inputs ({lacking})"


def _lacking(finding: Finding) -> str:
    """``kv-commit: needs commit.kv`` from the skipped finding's own message."""
    return finding.message.replace(f"{finding.name} lacked inputs", finding.name)


def plural(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``, ``10,000 steps``."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
