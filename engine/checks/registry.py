"""The checks in their order, and how a trace is run through them.

A finding that a check marks as a consequence stays one only if its cause was found in the same step (for the same
request, or for the whole step); otherwise it stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from engine.checks import (
    acceptance,
    bonus,
    kv_commit,
    links,
    mask_content,
    mask_extents,
    positions,
    reference,
    row_extents,
    tree_form,
    tree_size,
)
from engine.checks.blast_radius import damages
from engine.checks.context import Damage, Spec, StepContext
from engine.checks.finding import Finding, Verdict
from engine.step import VerifyStep

CHECKS: tuple[Spec, ...] = (
    Spec(
        "I1",
        "row-extents",
        (
            ("inputs.qo_indptr",),
            ("inputs.max_extend_len",),
            ("inputs.input_ids",),
            ("inputs.positions",),
            ("inputs.out_cache_loc",),
        ),
        row_extents.run,
    ),
    Spec(
        "I2",
        "tree-size",
        (
            ("inputs.input_ids", "requests.tree.tokens"),
            ("requests.counted_nodes",),
            ("config.budget",),
        ),
        tree_size.run,
    ),
    Spec(
        "I4", "mask-extents", (("inputs.mask_indptr",), ("inputs.custom_mask",)), mask_extents.run
    ),
    Spec("I7", "tree-form", (("requests.tree",),), tree_form.run),
    Spec("I8", "mask-content", (("inputs.custom_mask",),), mask_content.run),
    Spec("I10", "positions", (("inputs.positions",),), positions.run),
    Spec(
        "I12", "links", (("links.retrieve_next_token", "links.retrieve_next_sibling"),), links.run
    ),
    Spec(
        "I13",
        "acceptance",
        (("outcome.target_predict", "outcome.accept_index", "requests.tree.tokens"),),
        acceptance.run,
    ),
    Spec("I14", "bonus", (("outcome.accept_index",),), bonus.run),
    Spec("I15", "kv-commit", (("commit.kv",), ("commit.seq_lens",)), kv_commit.run),
    Spec(
        "I22", "reference", (("reference.target_predict", "outcome.target_predict"),), reference.run
    ),
)


@dataclass(frozen=True)
class Report:
    """What the checks say about a trace."""

    findings: tuple[Finding, ...]  # in time order; without the skipped ones
    skipped: tuple[Finding, ...]  # once a trace
    steps: int
    checks: tuple[str, ...]  # names of the checks that ran on at least one step

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Everything at fault, consequences included."""
        return tuple(f for f in self.findings if f.verdict is Verdict.FAULT)

    @property
    def causes(self) -> tuple[Finding, ...]:
        """Faults that no earlier finding explains."""
        return tuple(f for f in self.findings if f.is_cause)


def check_step(
    step: VerifyStep,
    previous: VerifyStep | None = None,
    damaged: Mapping[str, Damage] | None = None,
) -> list[Finding]:
    """Findings of one step, in the order of the checks.

    ``previous``: the same rank's step before, if recorded; ``damaged``: requests whose cache earlier steps left wrong.
    """
    context = StepContext(step, previous, [], damaged or {})
    for spec in CHECKS:
        if spec.can_run(step):
            context.found.extend(
                [_settled(finding, context) for finding in spec.run(spec, context)]
            )
    return context.found


def _settled(finding: Finding, context: StepContext) -> Finding:
    """Drop a claimed cause that was not found."""
    cause = finding.consequence_of
    if cause is None or any(
        other.check == cause and other.request in (None, finding.request) for other in context.found
    ):
        return finding
    damage = context.damaged.get(finding.request or "")
    return finding if damage and damage.check == cause else replace(finding, consequence_of=None)


def check_trace(steps: Iterable[VerifyStep]) -> Report:
    """Run every check over a trace; steps of several ranks may be mixed, in order of time."""
    checker = TraceChecker()
    for step in steps:
        checker.feed(step)
    return checker.report()


class TraceChecker:
    """Checks steps as they come; what :func:`check_trace` does, one step at a time."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._ran: set[str] = set()
        self._first: VerifyStep | None = None
        self._steps = 0
        self._last: dict[int, VerifyStep] = {}
        self._damaged: dict[int, dict[str, Damage]] = {}

    def feed(self, step: VerifyStep) -> list[Finding]:
        """Findings of the next step in order of time."""
        before = self._last.get(step.rank)
        previous = before if before is not None and before.step == step.step - 1 else None
        damaged = self._damaged.setdefault(step.rank, {})
        findings = check_step(step, previous, damaged)
        self._note_damage(step, findings, damaged)
        self._findings += findings
        self._ran |= {spec.id for spec in CHECKS if spec.id not in self._ran and spec.can_run(step)}
        self._first = self._first or step
        self._last[step.rank] = step
        self._steps += 1
        return findings

    @staticmethod
    def _note_damage(step: VerifyStep, findings: list[Finding], damaged: dict[str, Damage]) -> None:
        for finding in filter(damages, findings):
            for request in step.requests:
                if finding.request in (None, request.rid):
                    damaged.setdefault(request.rid, Damage(finding.check, step.step))

    def report(self) -> Report:
        """Everything so far."""
        lacking = [spec for spec in CHECKS if spec.id not in self._ran]
        skipped = tuple(_skipped(spec, self._first) for spec in lacking if self._first)
        names = tuple(spec.name for spec in CHECKS if spec.id in self._ran)
        return Report(tuple(self._findings), skipped, self._steps, names)


def _skipped(spec: Spec, step: VerifyStep) -> Finding:
    lacking = [" and ".join(spec.missing(step, part)) for part in spec.parts]
    return Finding(
        check=spec.id,
        name=spec.name,
        verdict=Verdict.SKIPPED,
        step=None,
        rank=None,
        request=None,
        diagnosis=None,
        message=f"{spec.name} lacked inputs: needs {' or '.join(lacking)}",
    )
