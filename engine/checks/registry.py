"""The checks in their order, and how a trace is run through them.

A finding that a check marks as a consequence stays one only if its cause was found in the same step (for the same
request, or for the whole step); otherwise it stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.checks import (
    acceptance,
    bonus,
    capacity,
    drafter_context,
    kv_commit,
    kv_extents,
    links,
    live_rows,
    mask_content,
    mask_extents,
    mask_packing,
    output,
    padding,
    positions,
    ranks,
    recurrent_commit,
    reference,
    row_extents,
    tree_form,
    tree_size,
    write_slots,
)
from engine.checks.blast_radius import damaged_requests
from engine.checks.consequences import vanishes_with
from engine.checks.context import Damage, Spec, StepContext
from engine.checks.finding import Finding, Verdict
from engine.checks.rank_groups import RankGroups
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
        needs_rows=False,
    ),
    Spec(
        "I2",
        "tree-size",
        (
            ("inputs.input_ids", "requests.tree.tokens"),
            ("requests.counted_nodes",),
            ("config.budget",),
            ("inputs.qo_indptr",),
        ),
        tree_size.run,
        needs_rows=False,
    ),
    Spec(
        "I3",
        "kv-extents",
        (
            ("inputs.kv_indptr",),
            ("inputs.seq_lens",),
            ("inputs.kv_indices", "inputs.kv_indptr", "requests.prefix_slots"),
            ("inputs.kv_last_page_len",),
        ),
        kv_extents.run,
        needs_rows=False,
    ),
    Spec(
        "I4", "mask-extents", (("inputs.mask_indptr",), ("inputs.custom_mask",)), mask_extents.run
    ),
    Spec(
        "I5", "mask-packing", (("inputs.custom_mask",), ("inputs.byte_indptr",)), mask_packing.run
    ),
    Spec(
        "I6",
        "capacity",
        (
            ("config.mask_capacity",),
            ("config.max_position",),
            ("config.index_dtype",),
            ("inputs.mask_indptr",),
        ),
        capacity.run,
    ),
    Spec("I7", "tree-form", (("requests.tree",),), tree_form.run, needs_rows=False),
    Spec("I8", "mask-content", (("inputs.custom_mask",),), mask_content.run),
    Spec(
        "I9",
        "live-rows",
        (("inputs.custom_mask",), ("outcome.finite_rows",), ("outcome.top2",)),
        live_rows.run,
    ),
    Spec("I10", "positions", (("inputs.positions",),), positions.run),
    Spec(
        "I11",
        "padding",
        (("inputs.positions",), ("inputs.out_cache_loc", "config.padding_slot")),
        padding.run,
    ),
    Spec(
        "I12",
        "links",
        (("links.retrieve_next_token",), ("links.retrieve_next_sibling",)),
        links.run,
        needs_rows=False,
    ),
    Spec(
        "I13",
        "acceptance",
        (
            ("outcome.target_predict", "outcome.accept_index", "requests.tree.tokens"),
            ("outcome.accept_index", "outcome.accept_length"),
        ),
        acceptance.run,
    ),
    Spec("I14", "bonus", (("outcome.accept_index",),), bonus.run),
    Spec(
        "I15",
        "kv-commit",
        (("outcome.accept_index", "commit.kv"), ("outcome.accept_index", "commit.seq_lens")),
        kv_commit.run,
    ),
    Spec("I16", "write-slots", (("inputs.out_cache_loc",),), write_slots.run),
    Spec(
        "I17",
        "recurrent-commit",
        (
            ("outcome.accept_index", "commit.recurrent_index"),
            ("outcome.target_predict", "requests.tree.tokens", "commit.recurrent_index"),
        ),
        recurrent_commit.run,
    ),
    Spec(
        "I18",
        "drafter-context",
        (
            ("outcome.accept_index", "commit.hidden_rows"),
            ("outcome.target_predict", "requests.tree.tokens", "commit.hidden_rows"),
            ("outcome.bonus_tokens", "requests.tree.tokens"),
        ),
        drafter_context.run,
    ),
    Spec(
        ranks.ID,
        ranks.NAME,
        ((),),
        ranks.one_rank_alone,
        needs_rows=False,
        needs_ranks=True,
    ),
    Spec("I20", "output", (("outcome.emitted",),), output.run),
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
    return _judge(StepContext(step, previous, [], damaged or {}))


def _judge(context: StepContext) -> list[Finding]:
    """Run every check that can run; each sees the findings of those before it."""
    for spec in CHECKS:
        if spec.can_run(context.step):
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


def check_trace(steps: Iterable[VerifyStep]) -> Report:
    """Run every check over a trace; steps of several ranks may be mixed, in order of time."""
    checker = TraceChecker()
    for step in steps:
        checker.feed(step)
    return checker.report()


class TraceChecker:
    """Checks steps as they come; what :func:`check_trace` does, one step at a time."""

    def __init__(self) -> None:
        self._findings: list[list[Finding]] = []  # of each step fed
        self._ran: set[str] = set()
        self._first: VerifyStep | None = None
        self._steps = 0
        self._recent: dict[int, list[VerifyStep]] = {}  # by rank: the last two step numbers
        self._damaged: dict[int, dict[str, Damage]] = {}
        self._ranks = RankGroups()

    def feed(self, step: VerifyStep) -> list[Finding]:
        """Findings of the next step in order of time."""
        recent = [other for other in self._recent.get(step.rank, []) if other.step >= step.step - 1]
        damaged = self._damaged.setdefault(step.rank, {})
        context = StepContext(step, _before(step, recent), [], dict(damaged))
        findings = _judge(context)
        for rid, check in damaged_requests(context).items():
            damaged.setdefault(rid, Damage(check, step.step))
        self._findings.append(findings)
        self._ran |= {
            spec.id
            for spec in CHECKS
            if spec.id not in self._ran and not spec.needs_ranks and spec.can_run(step)
        }
        self._ranks.add(context, findings)
        apart = self._ranks.take_complete(step)
        self._first = self._first or step
        self._recent[step.rank] = [*recent, step]
        self._steps += 1
        return [*findings, *apart]

    def report(self) -> Report:
        """Everything so far."""
        found = self._ranks.merged(self._findings)
        ran = self._ran | ({ranks.ID} if self._ranks.compared else set())
        lacking = [spec for spec in CHECKS if spec.id not in ran]
        skipped = tuple(_skipped(spec, self._first) for spec in lacking if self._first)
        names = tuple(spec.name for spec in CHECKS if spec.id in ran)
        return Report(found, skipped, self._steps, names)


def _before(step: VerifyStep, recent: list[VerifyStep]) -> VerifyStep | None:
    """The record of the step before that shares most requests with this one."""
    rids = {request.rid for request in step.requests}
    shared = [
        (sum(request.rid in rids for request in other.requests), other)
        for other in recent
        if other.step == step.step - 1
    ]
    count, other = max(shared, key=lambda pair: pair[0], default=(0, None))
    return other if count else None


def _skipped(spec: Spec, step: VerifyStep) -> Finding:
    lacking = [" and ".join(spec.missing(step, part)) for part in spec.parts]
    if spec.needs_ranks:
        lacking = ["several ranks"]
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
