"""Collects the ranks of each step as they come, and puts what differs between them into the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.checks.context import StepContext
from engine.checks.finding import Finding
from engine.checks.rank_views import View, views_of
from engine.checks.ranks import ID, compare_ranks
from engine.step import VerifyStep


class RankGroups:
    """Views of the ranks of each step. A step is compared as soon as all of its ranks are there, or at the end."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, Mapping[str, View]]] = {}  # step -> rank -> views
        self._places: dict[tuple[int, int], int] = {}  # (step, rank) -> number in order of time
        self._fed = 0
        self._apart: list[Finding] = []
        self._settled: set[tuple[int, int, str | None]] = set()  # whose I22 follows from I19
        self._some = False

    @property
    def compared(self) -> bool:
        """Whether some step had several ranks."""
        return self._some or any(len(ranks) > 1 for ranks in self._waiting.values())

    def add(self, context: StepContext, findings: Sequence[Finding]) -> None:
        """Keep what the next step in order of time says, if there are other ranks to compare it with."""
        step = context.step
        if step.world_size > 1:
            self._waiting.setdefault(step.step, {})[step.rank] = views_of(context)
            self._places[step.step, step.rank] = self._fed
        self._fed += 1

    def take_complete(self, step: VerifyStep) -> list[Finding]:
        """Findings about a step whose last rank has come."""
        ranks = self._waiting.get(step.step, {})
        if len(ranks) < max(step.world_size, 2):
            return []
        del self._waiting[step.step]
        self._some = True
        found = compare_ranks(step.step, ranks)
        self._apart += found
        self._settled |= _settles_reference(found, ranks)
        return found

    def merged(self, findings: Sequence[Sequence[Finding]]) -> tuple[Finding, ...]:
        """All findings in order of time and of the checks, those of incomplete steps included."""
        apart, settled = list(self._apart), set(self._settled)
        for step, ranks in self._waiting.items():
            if len(ranks) > 1:
                found = compare_ranks(step, ranks)
                apart += found
                settled |= _settles_reference(found, ranks)
        out = [list(each) for each in findings]
        for finding in apart:
            assert finding.step is not None
            assert finding.rank is not None
            place = out[self._places[finding.step, finding.rank]]
            at = sum(_number(other) <= _number(finding) for other in place)
            place.insert(at, finding)
        return tuple(_follows(finding, settled) for each in out for finding in each)


def _number(finding: Finding) -> int:
    return int(finding.check[1:])


def _settles_reference(
    found: Sequence[Finding], ranks: Mapping[int, Mapping[str, View]]
) -> set[tuple[int, int, str | None]]:
    """``(step, rank, request)`` where plain decoding agrees with another rank wherever it differs from this one."""
    out: set[tuple[int, int, str | None]] = set()
    for finding in found:
        rank, rid = finding.rank, finding.request
        assert rank is not None
        assert rid is not None
        assert finding.step is not None
        others = [views[rid] for other, views in ranks.items() if other != rank and rid in views]
        if any(ranks[rank][rid].explains_reference(other) for other in others):
            out.add((finding.step, rank, rid))
    return out


def _follows(finding: Finding, settled: set[tuple[int, int, str | None]]) -> Finding:
    """A mismatch with plain decoding that would vanish with another rank's predictions."""
    if finding.check != "I22" or not finding.is_cause or finding.step is None:
        return finding
    assert finding.rank is not None
    mine = (finding.step, finding.rank, finding.request)
    return replace(finding, consequence_of=ID) if mine in settled else finding
