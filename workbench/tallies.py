"""How often a cause was found: on each rank, in each request, in each step.

A finding of the whole step counts for each request that the step held. Pure; the caller says which those are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from engine.checks.finding import Finding

Live = Callable[[int | None, int | None], Sequence[str]]  # step, rank -> requests


@dataclass
class Tally:
    """One rank, request or step."""

    name: str
    findings: int = 0
    consequences: int = 0
    steps: set[int] = field(default_factory=set)

    @property
    def first_step(self) -> int | None:
        """The first step in which something was found."""
        return min(self.steps, default=None)


def by_rank(findings: Iterable[Finding], consequences: Iterable[Finding]) -> list[Tally]:
    """Counts of each rank, the highest first."""
    return _tally(findings, consequences, lambda f: (str(f.rank),))


def by_step(findings: Iterable[Finding], consequences: Iterable[Finding]) -> list[Tally]:
    """Counts of each step, the highest first."""
    return _tally(findings, consequences, lambda f: (str(f.step),))


def by_request(
    findings: Iterable[Finding], consequences: Iterable[Finding], live: Live
) -> list[Tally]:
    """Counts of each request, the highest first."""

    def requests(finding: Finding) -> Sequence[str]:
        whole = finding.request is None
        return live(finding.step, finding.rank) if whole else (str(finding.request),)

    return _tally(findings, consequences, requests)


def _tally(
    findings: Iterable[Finding],
    consequences: Iterable[Finding],
    names: Callable[[Finding], Iterable[str]],
) -> list[Tally]:
    found: dict[str, Tally] = {}
    for finding, is_own in (*((f, True) for f in findings), *((f, False) for f in consequences)):
        for name in names(finding):
            tally = found.setdefault(name, Tally(name))
            tally.findings += is_own
            tally.consequences += not is_own
            if finding.step is not None:
                tally.steps.add(finding.step)
    first = {tally.name: tally.first_step or 0 for tally in found.values()}
    return sorted(found.values(), key=lambda t: (-t.findings, -t.consequences, first[t.name]))
