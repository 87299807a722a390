"""One step through every check, each finding settled: a cause, or the consequence of an earlier one.

A finding that a check marks as a consequence stays one only if its cause was found in the same step (for the same
request, or for the whole step); otherwise it stands alone.
"""

from __future__ import annotations

from engine.checks.consequences import vanishes_with
from engine.checks.context import Spec, StepContext
from engine.checks.finding import Finding
from engine.checks.glance.silent import silent_checks
from engine.checks.table import CHECKS


def judge(context: StepContext) -> list[Finding]:
    """Run every check that can run and may find something; each sees the findings of those before it."""
    silent = silent_checks(context)
    for spec in CHECKS:
        if spec.id not in silent and spec.can_run(context.step):
            for finding in spec.run(spec, context):
                context.found.append(_settled(spec, finding, context))
    return context.found


def _settled(spec: Spec, finding: Finding, context: StepContext) -> Finding:
    """Drop a claimed cause that was not found; look for one where none is claimed."""
    cause, damage = finding.consequence_of, context.damaged.get(finding.request or "")
    if cause is not None and damage is not None and damage.check == cause:
        return finding
    for other in context.found:
        # The same check explains a later request by an earlier one's extent; what concerns the whole step may follow
        # from one request's value.
        wider = cause == spec.id or finding.request is None
        if other.check == cause and (wider or other.request in (None, finding.request)):
            return finding
    return finding.explained_by(vanishes_with(spec, finding, context))
