"""The search: drop steps, ranks, requests, nodes, rows and prefix tokens as long as the diagnosis stays.

Greedy delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input"): the boldest
reduction that still gives the wanted cause, and no new one, is taken, until none is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.checks.finding import Finding
from engine.checks.registry import check_trace
from engine.minimize.relayout import relayout
from engine.minimize.selection import Selection, everything, smaller
from engine.step import VerifyStep

MAX_TRIES = 2000


@dataclass(frozen=True, eq=False)
class Minimized:
    """The smallest steps found, and the cause that they still have."""

    steps: tuple[VerifyStep, ...]
    cause: Finding
    tries: int


def minimize(
    steps: Sequence[VerifyStep],
    *,
    diagnosis: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Minimized:
    """Shrink ``steps`` to the first cause, or to the first one of ``diagnosis``.

    Raises ``ValueError`` if nothing is at fault, or nothing with that diagnosis.
    """
    causes = check_trace(steps).causes
    wanted = [c for c in causes if diagnosis in (None, c.diagnosis)]
    if not causes:
        raise ValueError("expected steps with a fault, found none")
    if not wanted:
        known = ", ".join(sorted({str(c.diagnosis) for c in causes}))
        raise ValueError(
            f"diagnosis: expected one that these steps have ({known}), found {diagnosis}"
        )
    beside = {(c.check, c.diagnosis) for c in causes if c.step == wanted[0].step}
    return _Search(wanted[0], beside, progress).run(list(steps))


class _Search:
    """``allowed``: causes that the faulty step has anyway; none other may appear on the way."""

    def __init__(
        self,
        cause: Finding,
        allowed: set[tuple[str, str | None]],
        progress: Callable[[str, float], None] | None,
    ) -> None:
        self.cause, self.allowed, self.progress, self.tries = cause, allowed, progress, 0

    def run(self, steps: list[VerifyStep]) -> Minimized:
        steps = self._fewer_steps(steps)
        faulty = len(steps) - 1
        steps = self._shrink(steps, faulty)
        found = self._cause_in(steps)
        assert found is not None
        return Minimized(tuple(steps), found, self.tries)

    def _fewer_steps(self, steps: list[VerifyStep]) -> list[VerifyStep]:
        """The faulty step alone, with the one before it, with all ranks of it, or with everything before it."""
        step, rank = self.cause.step, self.cause.rank
        alone = [s for s in steps if s.step == step and s.rank == rank]
        pair = [
            s for s in steps if s.rank == rank and step is not None and s.step in (step - 1, step)
        ]
        ranks = [s for s in steps if s.step == step]
        until = [s for s in steps if step is not None and s.step <= step]
        for fewer in (alone, pair, ranks):
            if self._cause_in(fewer) is not None:
                return fewer
        return until

    def _shrink(self, steps: list[VerifyStep], faulty: int) -> list[VerifyStep]:
        """Shrink the last step; the one before it, where there is one, stays as it is."""
        original, chosen = steps[faulty], everything(steps[faulty])
        while self.tries < MAX_TRIES:
            smallest = self._next(steps, original, chosen)
            if smallest is None:
                break
            chosen = smallest
            if self.progress is not None:
                requests, nodes, rows, prefix = chosen.size
                label = f"{requests} requests, {nodes} nodes, {rows} rows, {prefix} prefix tokens"
                self.progress(label, self.tries / MAX_TRIES)
        if chosen == everything(original):
            return steps
        return [*steps[:faulty], relayout(original, chosen)]

    def _next(
        self, steps: list[VerifyStep], original: VerifyStep, chosen: Selection
    ) -> Selection | None:
        for candidate in smaller(original, chosen):
            try:
                made = relayout(original, candidate)
            except ValueError:
                continue
            if self._cause_in([*steps[:-1], made]) is not None:
                return candidate
        return None

    def _cause_in(self, steps: list[VerifyStep]) -> Finding | None:
        """The wanted cause in the last step, if no new one came with it."""
        if not steps:
            return None
        self.tries += 1
        causes = [c for c in check_trace(steps).causes if c.step == self.cause.step]
        if not {(c.check, c.diagnosis) for c in causes} <= self.allowed:
            return None
        wanted = (self.cause.check, self.cause.diagnosis)
        return next((c for c in causes if (c.check, c.diagnosis) == wanted), None)
