"""What a check is given: one step with its oracle, the step before it, and the findings so far.

Everything that is derived from the step is derived once, when it is first asked for; nobody may change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from engine.checks.differences import Difference as Difference
from engine.checks.differences import assumed as assumed
from engine.checks.differences import count_differences as count_differences
from engine.checks.differences import first_difference as first_difference
from engine.checks.differences import same as same
from engine.checks.fast_clean import mask_is_intended
from engine.checks.finding import Finding, Verdict, Where
from engine.checks.spec import Spec as Spec
from engine.checks.spec import lookup as lookup
from engine.checks.spec import rows_known as rows_known
from engine.layout import UNREAD, MaskView, addressed_mask, built_mask
from engine.lazy import lazy
from engine.oracle import Oracle
from engine.step import Request, VerifyStep

MAX_CELLS = 64  # cells that a finding lists
T = TypeVar("T")


@dataclass(frozen=True)
class Damage:
    """An earlier fault that left wrong keys and values in a request's cache."""

    check: str
    step: int


def once(derive: Callable[[StepContext, int], T]) -> Callable[[StepContext, int], T]:
    """``derive(context, request)``, which depends on the step alone, from now on derived once a step and request."""

    @wraps(derive)
    def derived(context: StepContext, request: int) -> T:
        key = derive, request
        try:
            value: T = context.memo[key]
        except KeyError:
            value = context.memo[key] = derive(context, request)
        return value

    return derived


def once_a_step(derive: Callable[[StepContext], T]) -> Callable[[StepContext], T]:
    """The same for what is derived from the whole step."""

    @wraps(derive)
    def derived(context: StepContext) -> T:
        if derive not in context.memo:
            context.memo[derive] = derive(context)
        value: T = context.memo[derive]
        return value

    return derived


class _Views(dict[int, MaskView]):
    """Masks by request, each made when it is first asked for."""

    def __init__(self, requests: list[int], make: Callable[[int], MaskView]):
        self._requests, self._make = requests, make

    def __missing__(self, request: int) -> MaskView:
        if request not in self._requests:
            raise KeyError(request)
        self[request] = self._make(request)
        return self[request]


@dataclass(frozen=True, eq=False)
class StepContext:
    """One step with its oracle, the step before it, and the findings so far."""

    step: VerifyStep
    previous: VerifyStep | None = None
    found: list[Finding] = field(default_factory=list)  # by the checks that ran before, in order
    damaged: Mapping[str, Damage] = field(default_factory=dict)  # by request id, from earlier steps
    made: StepContext | None = None  # the step before by itself, where it was looked at already
    memo: dict[Any, Any] = field(default_factory=dict, init=False)  # of :func:`once`

    @lazy
    def oracle(self) -> Oracle:
        """The reference for this step."""
        return Oracle(self.step)

    def by_itself(self) -> StepContext:
        """The same step without the one before and without findings; what was derived from it is shared."""
        alone = StepContext(self.step)
        vars(alone).update(oracle=self.oracle, memo=self.memo)
        return alone

    @lazy
    def earlier(self) -> StepContext | None:
        """The step before by itself."""
        if self.made is not None and self.made.step is self.previous:
            return self.made
        return None if self.previous is None else StepContext(self.previous)

    @lazy
    def well_formed(self) -> tuple[bool, ...]:
        """Per live request: every node reaches the root. Where not, the later references are undefined."""
        return tuple(all(tree.paths) for tree in self.oracle.trees)

    @lazy
    def rows_known(self) -> bool:
        """Whether the rows of each request follow from what was recorded."""
        return rows_known(self.step)

    @property
    def requests(self) -> range:
        """Live requests by number."""
        return range(self.step.raw_bs)

    @lazy
    def readable(self) -> list[int]:
        """Live requests with a well-formed tree."""
        return [i for i in self.requests if self.well_formed[i]]

    @lazy
    def stops(self) -> frozenset[int]:
        """End-of-sequence tokens."""
        known = self.step.config.eos_token_ids
        return frozenset() if known is None else frozenset(known.tolist())

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

    def number_before(self, request: int) -> int | None:
        """Number of the same request in the step before, by its id."""
        return self._numbers_before.get(self.step.requests[request].rid)

    @lazy
    def _numbers_before(self) -> dict[str, int]:
        before = () if self.previous is None else self.previous.requests
        return {other.rid: i for i, other in reversed(list(enumerate(before)))}  # the first counts

    def previous_request(self, request: int) -> Request | None:
        """The same request in the step before, by its id."""
        number = self.number_before(request)
        return None if number is None or self.previous is None else self.previous.requests[number]

    def rid(self, request: int) -> str:
        """Id of a live request."""
        return self.step.requests[request].rid

    @lazy
    def built(self) -> Mapping[int, MaskView]:
        """Built mask of each readable request."""
        return _Views(self.readable, lambda i: built_mask(self.step, self.oracle.geometry, i))

    @lazy
    def intended(self) -> Mapping[int, MaskView]:
        """Intended mask of each readable request."""
        return _Views(self.readable, self.oracle.intended)

    @lazy
    def addressed(self) -> Mapping[int, MaskView]:
        """Addressed mask of each readable request."""
        reads_prefix, geometry = self.oracle.reads_prefix(), self.oracle.geometry
        return _Views(
            self.readable,
            lambda i: addressed_mask(self.step, geometry, i, reads_prefix=reads_prefix),
        )

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
        differs = want != np.where(have == UNREAD, 0, have)
        if differs.any():
            differs &= ~assumed(view)[:count]
        cells = np.argwhere(differs).astype(np.int64)
        return Difference(
            view, cells, want[differs].astype(np.int64), have[differs].astype(np.int64)
        )

    @once
    def surely_intended(self, request: int) -> bool:
        """Whether the buffer holds the intended mask, a 0 or a 1 a cell, as far as that is told at a glance."""
        return mask_is_intended(self.step, self.oracle, request)

    @once
    def built_difference(self, request: int) -> Difference | None:
        """Where the built mask differs from the intended one in the rows of real nodes, None where nowhere."""
        if self.surely_intended(request):
            return None
        difference = self.difference(self.built[request], request)
        return difference if len(difference.cells) else None

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
