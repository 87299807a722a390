"""What a check is given, and the shape of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

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

    @property
    def requests(self) -> range:
        """Live requests by number."""
        return range(self.step.raw_bs)

    @property
    def readable(self) -> list[int]:
        """Live requests with a well-formed tree."""
        return [i for i in self.requests if self.well_formed[i]]

    def previous_request(self, request: int) -> Request | None:
        """The same request in the step before, by its id."""
        rid = self.step.requests[request].rid
        before = () if self.previous is None else self.previous.requests
        return next((other for other in before if other.rid == rid), None)

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
        wanted = (inputs.custom_mask, inputs.qo_indptr, inputs.kv_indptr, inputs.mask_indptr)
        return all(array is not None and len(array) > 0 for array in wanted)

    def difference(self, view: MaskView, request: int) -> Difference:
        """Where ``view`` differs from the intended mask in the rows of real nodes.

        A row that no program computes attends to nothing, so it differs wherever something should be visible.
        """
        num_nodes = self.oracle.trees[request].num_nodes
        want, have = self.intended[request].cells[:num_nodes], view.cells[:num_nodes]
        differs = want != np.where(have == UNREAD, 0, have)
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

    def can_run(self, step: VerifyStep) -> bool:
        """Whether the inputs of at least one part are there."""
        return any(not self.missing(step, part) for part in self.parts)

    def missing(self, step: VerifyStep, part: tuple[str, ...]) -> list[str]:
        """Fields of a part that were not recorded."""
        return [path for path in part if lookup(step, path) is None]

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
    """Value at a dotted path such as ``inputs.qo_indptr``; ``requests.x`` is that of the first request."""
    value: Any = step
    for name in path.split("."):
        if isinstance(value, tuple):
            value = value[0] if value else None
        value = None if value is None else getattr(value, name)
    return value


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
