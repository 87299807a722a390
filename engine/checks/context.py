"""What a check is given, and the shape of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.layout import UNREAD, VISIBLE, MaskView, addressed_mask, built_mask
from engine.oracle import Oracle
from engine.step import Int64, Request, VerifyStep

MAX_CELLS = 64  # cells that a finding lists


@dataclass(frozen=True)
class Damage:
    """An earlier fault that left wrong keys and values in a request's cache."""

    check: str
    step: int


@dataclass(frozen=True, eq=False)
class Difference:
    """Cells of one request's real rows in which two masks differ."""

    view: MaskView
    cells: Int64  # [n, 2] local row, column; row-major
    expected: Int64  # [n] 0 or 1
    found: Int64  # [n] 0, 1 or UNREAD

    @property
    def extra(self) -> bool:
        """Every differing cell is visible and should not be."""
        return bool((self.found == VISIBLE).all())


def assumed(view: MaskView) -> NDArray[np.bool_]:
    """Cells that are visible although no byte was read for them, bool [q_len, prefix_len + q_len]."""
    unread: NDArray[np.bool_] = np.logical_and(view.bytes < 0, view.cells == VISIBLE)
    return unread


@dataclass(frozen=True, eq=False)
class StepContext:
    """One step with its oracle, the step before it, and the findings so far."""

    step: VerifyStep
    previous: VerifyStep | None = None
    found: list[Finding] = field(default_factory=list)  # by the checks that ran before, in order
    damaged: Mapping[str, Damage] = field(default_factory=dict)  # by request id, from earlier steps

    @cached_property
    def oracle(self) -> Oracle:
        """The reference for this step."""
        return Oracle(self.step)

    @cached_property
    def well_formed(self) -> tuple[bool, ...]:
        """Per live request: every node reaches the root. Where not, the later references are undefined."""
        return tuple(bool((tree.depths >= 0).all()) for tree in self.oracle.trees)

    @cached_property
    def rows_known(self) -> bool:
        """Whether the rows of each request follow from what was recorded."""
        return rows_known(self.step)

    @property
    def requests(self) -> range:
        """Live requests by number."""
        return range(self.step.raw_bs)

    @property
    def readable(self) -> list[int]:
        """Live requests with a well-formed tree."""
        return [i for i in self.requests if self.well_formed[i]]

    def has(self, check: str, request: int | None) -> bool:
        """Whether a check found a fault in this step that concerns the request."""
        rid = None if request is None else self.step.requests[request].rid
        return any(
            other.check == check and other.verdict is Verdict.FAULT and other.request in (None, rid)
            for other in self.found
        )

    def packed_otherwise(self, request: int) -> bool:
        """Whether I5 found that another decoding gives the request's intended mask in every cell."""
        rid = self.rid(request)
        return any(f.check == "I5" and f.request == rid and f.where.cells for f in self.found)

    def previous_request(self, request: int) -> Request | None:
        """The same request in the step before, by its id."""
        rid = self.step.requests[request].rid
        before = () if self.previous is None else self.previous.requests
        return next((other for other in before if other.rid == rid), None)

    def rid(self, request: int) -> str:
        """Id of a live request."""
        return self.step.requests[request].rid

    @cached_property
    def built(self) -> dict[int, MaskView]:
        """Built mask of each readable request."""
        return {i: built_mask(self.step, self.oracle.geometry, i) for i in self.readable}

    @cached_property
    def intended(self) -> dict[int, MaskView]:
        """Intended mask of each readable request."""
        return {i: self.oracle.intended(i) for i in self.readable}

    @cached_property
    def addressed(self) -> dict[int, MaskView]:
        """Addressed mask of each readable request."""
        reads_prefix = self.oracle.reads_prefix()
        geometry = self.oracle.geometry
        return {
            i: addressed_mask(self.step, geometry, i, reads_prefix=reads_prefix)
            for i in self.readable
        }

    def can_address(self) -> bool:
        """Whether everything that the address formula needs was recorded."""
        inputs = self.step.inputs
        if not self.rows_known:
            return False
        wanted = (inputs.custom_mask, inputs.qo_indptr, inputs.kv_indptr, inputs.mask_indptr)
        return all(array is not None and len(array) > 0 for array in wanted)

    def difference(self, view: MaskView, request: int) -> Difference:
        """Where ``view`` differs from the intended mask in the rows of real nodes.

        A row that no program computes attends to nothing, so it differs wherever something should be visible. Prefix
        columns that are taken for visible without being read say nothing, so they never differ.
        """
        count = self.oracle.num_verified(request)
        want, have = self.intended[request].cells[:count], view.cells[:count]
        differs = (want != np.where(have == UNREAD, 0, have)) & ~assumed(view)[:count]
        cells = np.argwhere(differs).astype(np.int64)
        return Difference(
            view, cells, want[differs].astype(np.int64), have[differs].astype(np.int64)
        )

    def locate(self, request: int, difference: Difference) -> Where:
        """The first differing cell as a place."""
        if len(difference.cells) == 0:
            return Where()
        first_row = int(self.oracle.geometry.qo_indptr[request])
        row, column = map(int, difference.cells[0])
        byte = int(difference.view.bytes[row, column])
        listed = difference.cells[:MAX_CELLS]
        return Where(
            node=row,
            row=first_row + row,
            column=column,
            byte=None if byte < 0 else byte,
            cells=tuple((first_row + int(r), int(c)) for r, c in listed),
        )


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
        return any(not self.missing(step, part) for part in self.parts)

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
    values: list[Any] = [step]
    for name in path.split("."):
        values = [getattr(value, name) for value in values]
        values = [item for value in values for item in (value if name == "requests" else (value,))]
        values = [value for value in values if value is not None]
    return values[0] if values else None


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


def first_difference(found: Int64, expected: Int64) -> int | None:
    """Index of the first entry that differs; the shorter length where one array is a prefix of the other."""
    common = min(len(found), len(expected))
    differing = np.flatnonzero(found[:common] != expected[:common])
    if len(differing):
        return int(differing[0])
    return common if len(found) != len(expected) else None


def count_differences(found: Int64, expected: Int64) -> int:
    """Entries that differ, missing and surplus ones included."""
    common = min(len(found), len(expected))
    return int((found[:common] != expected[:common]).sum()) + abs(len(found) - len(expected))
