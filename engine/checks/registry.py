"""The checks, and how a step or a whole trace is run through them: the names that callers use.

Not here: what each check is (``engine.checks.table``), and what is kept from step to step
(``engine.checks.trace_checker``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.checks.context import Damage, StepContext
from engine.checks.finding import Finding
from engine.checks.judge import judge
from engine.checks.table import CHECKS as CHECKS
from engine.checks.trace_checker import Report as Report
from engine.checks.trace_checker import TraceChecker as TraceChecker
from engine.step import VerifyStep


def check_step(
    step: VerifyStep,
    previous: VerifyStep | None = None,
    damaged: Mapping[str, Damage] | None = None,
) -> list[Finding]:
    """Findings of one step, in the order of the checks.

    ``previous``: the same rank's step before, if recorded; ``damaged``: requests whose cache earlier steps left wrong.
    """
    return judge(StepContext(step, previous, [], damaged or {}))


def check_trace(steps: Iterable[VerifyStep]) -> Report:
    """Run every check over a trace; steps of several ranks may be mixed, in order of time."""
    checker = TraceChecker()
    for step in steps:
        checker.feed(step)
    return checker.report()
