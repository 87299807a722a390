"""The shape of a check: which recorded fields it works on, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from engine.checks.finding import Effect, Finding, Verdict
from engine.oracle import Oracle
from engine.step import VerifyStep

if TYPE_CHECKING:
    from engine.checks.context import StepContext

Getter = Callable[[VerifyStep], Any]


@dataclass(frozen=True)
class Spec:
    """A check: its id, the parts it consists of (each a tuple of field paths), and its function."""

    id: str
    name: str
    parts: tuple[tuple[str, ...], ...]
    run: Callable[[Spec, StepContext], Iterable[Finding]]
    needs_rows: bool = True  # it has to know which rows are whose
    needs_ranks: bool = False  # it compares several ranks of one step

    def can_run(self, step: VerifyStep) -> bool:
        """Whether the inputs of at least one part are there."""
        if self.needs_ranks and step.world_size < 2:
            return False
        for getters in self._getters:
            for get in getters:
                if get(step) is None:
                    break
            else:
                return not self.needs_rows or rows_known(step)
        return False

    @cached_property
    def _getters(self) -> tuple[tuple[Getter, ...], ...]:
        return tuple(tuple(map(_getter, part)) for part in self.parts)

    def missing(self, step: VerifyStep, part: tuple[str, ...]) -> list[str]:
        """Fields of a part that were not recorded."""
        lacking = [path for path in part if lookup(step, path) is None]
        if self.needs_ranks and step.world_size < 2:
            lacking.append("several ranks")
        return [*lacking, "config.budget"] if self.needs_rows and not rows_known(step) else lacking

    def finding(
        self,
        context: StepContext,
        request: int | None,
        diagnosis: str,
        message: str,
        *,
        effect: Effect,
        verdict: Verdict = Verdict.FAULT,
        **details: Any,
    ) -> Finding:
        """A finding of this check about a request, or about the whole step."""
        return Finding(
            check=self.id,
            name=self.name,
            verdict=verdict,
            step=context.step.step,
            rank=context.step.rank,
            request=None if request is None else context.step.requests[request].rid,
            diagnosis=diagnosis,
            message=message,
            effect=effect,
            **details,
        )


def lookup(step: VerifyStep, path: str) -> Any:
    """Value at a dotted path such as ``inputs.qo_indptr``; ``requests.x`` is the first request's that has one."""
    return _getter(path)(step)


@cache
def _getter(path: str) -> Getter:
    name, _, rest = path.partition(".")
    if name != "requests":
        return attrgetter(path)
    get = attrgetter(rest)

    def first(step: VerifyStep) -> Any:
        return next((value for r in step.requests if (value := get(r)) is not None), None)

    return first


PER_ROW = (
    "inputs.input_ids",
    "inputs.positions",
    "inputs.out_cache_loc",
    "outcome.target_predict",
)


def rows_known(step: VerifyStep) -> bool:
    """Whether the rows of each request follow from the trees and the settings.

    Static rows are budget + 1. Without the budget one row a node is taken for granted, unless everything that was
    recorded about rows says otherwise.
    """
    if step.config.budget is not None or step.config.verify_rows == "ragged":
        return True
    geometry = Oracle(step).geometry
    counts = [len(array) for path in PER_ROW if (array := lookup(step, path)) is not None]
    if step.inputs.qo_indptr is not None and len(step.inputs.qo_indptr):
        counts.append(int(step.inputs.qo_indptr[-1]))
    if counts or step.inputs.custom_mask is None:
        return not counts or int(geometry.qo_indptr[-1]) in counts
    ends = geometry.byte_indptr if geometry.bits else geometry.mask_indptr
    return len(step.inputs.custom_mask) == int(ends[-1])
