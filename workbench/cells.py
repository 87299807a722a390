"""Which cells of the mask buffer a finding speaks of: the one that was read, and the row's own."""

from __future__ import annotations

from engine.checks.context import StepContext
from engine.checks.finding import Finding
from workbench.stepview import ADDRESSING
from workbench.verdict import CellPair


def request_of_row(context: StepContext, row: int) -> int | None:
    """Number of the live request that a flat row belongs to."""
    return next((i for i in context.requests if row in context.oracle.rows(i)), None)


def cells_of(finding: Finding, context: StepContext) -> CellPair | None:
    """The finding's first cell; None where it names none, or reads the right one."""
    where = finding.where
    if finding.check not in ADDRESSING or where.row is None or where.column is None:
        return None
    request = request_of_row(context, where.row)
    if request is None:
        return None
    geometry = context.oracle.geometry
    own = geometry.byte_of(request, where.row - context.oracle.rows(request).start, where.column)
    if own is None or own == where.byte:
        return None
    return CellPair(context.step.requests[request].rid, where.byte, own)


def place_in(finding: Finding, context: StepContext) -> tuple[str | None, int | None]:
    """Request and node that a finding first shows at: its own, else those of its row."""
    where, rid, node = finding.where, finding.request, finding.where.node
    request = None if where.row is None else request_of_row(context, where.row)
    if request is not None and where.row is not None:
        rid = rid or context.step.requests[request].rid
        if node is None and rid == context.step.requests[request].rid:
            node = where.row - context.oracle.rows(request).start
    return rid, node
