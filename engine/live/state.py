"""What a follower knows at one moment, as facts: a row a rank, how the ranks stand, findings by cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.checks.finding import Finding, Verdict
from engine.live.agreement import Agreement


class RankState(StrEnum):
    """What a rank does, most urgent first."""

    UNREADABLE = "unreadable"
    STOPPED = "stopped"  # by its own word it does not record
    HOOK_MISSING = "hook missing"
    SILENT = "silent"
    DROPPING = "dropping"
    RECORDING = "recording"
    IDLE = "idle"  # alive, but without a step
    STARTING = "starting"  # no step yet
    ENDED = "ended"


# Told with the word, so that colour alone never says it.
SYMBOLS: Mapping[RankState, str] = {
    RankState.UNREADABLE: "✖",
    RankState.STOPPED: "⊘",
    RankState.HOOK_MISSING: "⚠",
    RankState.SILENT: "◌",
    RankState.DROPPING: "▼",
    RankState.RECORDING: "●",
    RankState.IDLE: "○",
    RankState.STARTING: "…",
    RankState.ENDED: "■",
}


@dataclass(frozen=True)
class RankRow:
    """One rank. None: not known."""

    name: str  # of the part that is read; of the health file where there is no trace
    path: Path | None  # where it lies on this machine
    group: str  # of ranks, where the server has several
    rank: int | None
    state: RankState
    steps: int = 0  # read
    last_step: int | None = None
    steps_a_second: float | None = None
    acceptance: float | None = None  # tokens a step and request, of the newest ones
    age: float | None = None  # seconds since the last step
    seen: int | None = None
    written: int | None = None
    dropped: int | None = None
    hooks: int | None = None  # in place
    missing: tuple[str, ...] = ()
    last_error: str | None = None
    stopped: str | None = None  # why it does not record, in its own words
    problem: str | None = None  # what could not be read
    faults: int = 0  # faulty steps


@dataclass(frozen=True)
class Cause:
    """One check's one diagnosis, over all ranks."""

    check: str
    diagnosis: str | None
    verdict: Verdict
    count: int
    first: Finding
    last: Finding


@dataclass(frozen=True)
class Faulty:
    """The newest faulty step: ``finding`` is the first cause in it."""

    name: str  # of the file
    path: Path | None
    finding: Finding


@dataclass(frozen=True)
class LiveState:
    """Everything at one moment."""

    url: str
    ranks: tuple[RankRow, ...] = ()
    agreements: tuple[Agreement, ...] = ()  # of each group of ranks
    causes: tuple[
        Cause, ...
    ] = ()  # those that no earlier finding explains, in order of their first
    newest_faulty: Faulty | None = None
    behind: bool = False  # there is more to read than was read yet
    problem: str | None = None  # why the directory could not be listed
    events: tuple[str, ...] = ()  # since the last poll, one sentence each
    findings: tuple[Finding, ...] = ()  # since the last poll, at most so many as a poll keeps

    @property
    def steps(self) -> int:
        """Steps that were read, of all ranks."""
        return sum(row.steps for row in self.ranks)

    @property
    def has_faults(self) -> bool:
        """Whether any step was at fault."""
        return any(cause.verdict is Verdict.FAULT for cause in self.causes)

    @property
    def unreadable(self) -> bool:
        """Whether something could not be read, or there is nothing."""
        return (
            self.problem is not None
            or not self.steps
            or any(row.state is RankState.UNREADABLE for row in self.ranks)
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "directory": self.url,
            "steps": self.steps,
            "ranks": [_row_json(row) for row in self.ranks],
            "agreement": [agreement.sentence for agreement in self.agreements],
            "causes": [_cause_json(cause) for cause in self.causes],
            "newest_faulty": None
            if self.newest_faulty is None
            else self.newest_faulty.finding.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "events": list(self.events),
            "behind": self.behind,
            "problem": self.problem,
        }


def _row_json(row: RankRow) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in RankRow.__dataclass_fields__ if name != "path"},
        "state": str(row.state),
        "missing": list(row.missing),
    }


def _cause_json(cause: Cause) -> dict[str, Any]:
    return {
        "check": cause.check,
        "diagnosis": cause.diagnosis,
        "verdict": str(cause.verdict),
        "count": cause.count,
        "first": cause.first.to_json(),
        "last_step": cause.last.step,
    }
