"""Ranks of a step against each other as their records come, whichever comes first; the comparison is the check's (I19).

Kept: the views of the newest :data:`KEPT` steps, and of each rank the first difference since it started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.checks.finding import Finding
from engine.checks.rank_views import View
from engine.checks.ranks import compare_ranks

KEPT = 256  # steps

Views = dict[int, Mapping[str, View]]  # rank -> request id -> view


@dataclass(frozen=True)
class Agreement:
    """How the ranks stand. ``apart``: each rank that differs, with its first difference."""

    group: str = ""  # of ranks, where the server has several
    ranks: tuple[int, ...] = ()  # that were compared
    steps: int = 0  # compared
    newest: int | None = None  # step number
    apart: tuple[tuple[int, Finding], ...] = ()

    @property
    def sentence(self) -> str:
        """``ranks 0-6 agree, rank 7 differs at step 14: predict, row 9``."""
        return f"{self.group}: {self._said}" if self.group else self._said

    @property
    def _said(self) -> str:
        if len(self.ranks) < 2:
            return "no step of several ranks yet, so nothing is compared"
        differing = {rank for rank, _ in self.apart}
        agreeing = [rank for rank in self.ranks if rank not in differing]
        steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
        if not differing:
            return f"{named(agreeing)} agree in {steps}, the newest {self.newest}"
        parts = (
            [f"{named(agreeing)} {'agrees' if len(agreeing) == 1 else 'agree'}"] if agreeing else []
        )
        return ", ".join([*parts, *self._groups()])

    def _groups(self) -> list[str]:
        """Ranks that part at the same place are named together."""
        places: dict[str, list[int]] = {}
        for rank, finding in self.apart:
            places.setdefault(f"at step {finding.step}: {place_of(finding)}", []).append(rank)
        return [
            f"{named(ranks)} {'differs' if len(ranks) == 1 else 'differ'} {place}"
            for place, ranks in places.items()
        ]


class Comparer:
    """Holds the records of the newest steps until the ranks that are expected have brought theirs."""

    def __init__(self, group: str = "") -> None:
        self._group = group
        self._views: dict[int, Views] = {}
        self._compared: dict[int, int] = {}  # step -> ranks that were compared
        self._told: dict[int, set[tuple[int, str | None]]] = {}  # step -> (rank, request)
        self._first: dict[int, Finding] = {}
        self._ranks: set[int] = set()
        self._steps, self._newest = 0, -1

    @property
    def state(self) -> Agreement:
        """How the ranks stand now."""
        apart = tuple((rank, self._first[rank]) for rank in sorted(self._first))
        newest = self._newest if self._steps else None
        return Agreement(self._group, tuple(sorted(self._ranks)), self._steps, newest, apart)

    def add(self, step: int, rank: int, views: Mapping[str, View]) -> None:
        """Take in what a rank says of a step."""
        self._views.setdefault(step, {})[rank] = views
        while len(self._views) > KEPT:
            self._drop(min(self._views))

    def compare(self, expected: Iterable[int]) -> list[Finding]:
        """What differs in steps that all ``expected`` ranks have brought; nothing is told twice."""
        wanted = set(expected)
        ready = [s for s, held in self._views.items() if self._is_new(s) and wanted <= set(held)]
        return [finding for step in sorted(ready) for finding in self._compare(step)]

    def _is_new(self, step: int) -> bool:
        return self._compared.get(step, 1) < len(self._views[step])

    def _compare(self, step: int) -> list[Finding]:
        held = self._views[step]
        self._steps += step not in self._compared
        self._newest = max(self._newest, step)
        self._compared[step] = len(held)
        self._ranks |= set(held)
        told = self._told.setdefault(step, set())
        found = [f for f in compare_ranks(step, held) if (f.rank, f.request) not in told]
        for finding in found:
            assert finding.rank is not None
            told.add((finding.rank, finding.request))
            first = self._first.get(finding.rank)
            if first is None or (first.step or 0) > step:
                self._first[finding.rank] = finding
        return found

    def _drop(self, step: int) -> None:
        del self._views[step]
        self._compared.pop(step, None)
        self._told.pop(step, None)


def place_of(finding: Finding) -> str:
    """``predict, row 9``: the field that differs first, from the check's own words."""
    return finding.message.partition(" in ")[2].partition(":")[0]


def named(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-6``, ``ranks 0-2, 5``."""
    numbers = sorted(ranks)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    spans = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(spans)}"
