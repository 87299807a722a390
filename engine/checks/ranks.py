"""I19: all ranks of a step agree on tokens, predictions, accepted rows, bonus and length, request by request.

The reference is the group that most ranks belong to, or rank 0's. A near-tie that ranks resolve differently is a fault
all the same: they run apart from then on, and the next collective hangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.checks.context import StepContext
from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.checks.reference import margin_is_tiny
from engine.step import Float64, Int64, VerifyStep

ID, NAME = "I19", "ranks"
NEEDS = ("world_size > 1", "the same step of several ranks")
HINT = "Decide on one rank and broadcast: tokens, predictions and accepted rows must not be computed twice."


@dataclass(frozen=True, eq=False)
class View:
    """What one rank says about one request."""

    fields: tuple[tuple[str, tuple[int, ...] | None], ...]  # in the order of the comparison
    first_row: int
    top2: Float64 | None  # [nodes, 2, 2]


def compare_ranks(
    steps: Mapping[int, VerifyStep], findings: Mapping[int, Sequence[Finding]]
) -> Iterable[Finding]:
    """One finding a diverging rank and request. ``steps`` and ``findings``: by rank, of one step."""
    rids = dict.fromkeys(request.rid for step in steps.values() for request in step.requests)
    contexts = {rank: StepContext(step) for rank, step in sorted(steps.items())}
    for rid in rids:
        views = {rank: _view(context, rid) for rank, context in contexts.items()}
        reference = _majority(views)
        for rank, view in views.items():
            finding = _difference(steps[rank], rid, rank, view, reference, views[reference])
            if finding is not None:
                cause = next((f.check for f in findings[rank] if _explains(f, rid)), None)
                yield finding.explained_by(cause)


def _explains(finding: Finding, rid: str) -> bool:
    return finding.is_cause and finding.check != "I22" and finding.request in (None, rid)


def _view(context: StepContext, rid: str) -> View | None:
    """None where the rank does not have the request."""
    step = context.step
    number = next((i for i, request in enumerate(step.requests) if request.rid == rid), None)
    if number is None:
        return None
    outcome, rows = step.outcome, context.oracle.real_rows(number)
    accepted = None if outcome.accept_index is None else outcome.accept_index[number]
    fields = (
        ("tokens", _plain(step.requests[number].tree.tokens)),
        ("predict", _slice(outcome.target_predict, rows)),
        ("accepted", None if accepted is None else _plain(accepted[accepted != -1] - rows.start)),
        ("bonus", _slice(outcome.bonus_tokens, range(number, number + 1))),
        ("length", _slice(outcome.accept_length, range(number, number + 1))),
    )
    top2 = None if outcome.top2 is None else outcome.top2[rows.start : rows.stop]
    return View(fields, rows.start, top2)


def _plain(array: Int64 | None) -> tuple[int, ...] | None:
    return None if array is None else tuple(int(n) for n in array)


def _slice(array: Int64 | None, rows: range) -> tuple[int, ...] | None:
    return None if array is None else _plain(array[rows.start : rows.stop])


def _majority(views: Mapping[int, View | None]) -> int:
    """Lowest rank of the largest group; rank order decides between groups of one size."""
    keys = {rank: None if view is None else view.fields for rank, view in views.items()}
    sizes = Counter(keys.values())
    best = max(sizes.values())
    return next(rank for rank, key in sorted(keys.items()) if sizes[key] == best)


def _difference(
    step: VerifyStep, rid: str, rank: int, view: View | None, reference: int, right: View | None
) -> Finding | None:
    """The first field that differs, in the order of the comparison."""
    if view is None or right is None:
        if view is right:
            return None
        return _finding(step, rid, rank, reference, "requests", right is not None, view is not None)
    for (name, found), (_, expected) in zip(view.fields, right.fields, strict=True):
        if found is None or expected is None or found == expected:
            continue
        at = next(
            (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
            min(len(found), len(expected)),
        )
        tie = name == "predict" and _is_near_tie(view, right, at)
        return _finding(
            step, rid, rank, reference, name, list(expected), list(found), view, at, tie
        )
    return None


def _is_near_tie(view: View, right: View, at: int) -> bool:
    sides = [
        side.top2[at] for side in (view, right) if side.top2 is not None and at < len(side.top2)
    ]
    if len(sides) != 2 or set(sides[0][:, 0].tolist()) != set(sides[1][:, 0].tolist()):
        return False
    return all(margin_is_tiny(side[:, 1], "bfloat16") for side in sides)


def _finding(
    step: VerifyStep,
    rid: str,
    rank: int,
    reference: int,
    name: str,
    expected: object,
    found: object,
    view: View | None = None,
    at: int = 0,
    near_tie: bool = False,
) -> Finding:
    by_node = view is not None and name in ("tokens", "predict")
    where = Where(node=at, row=view.first_row + at) if view is not None and by_node else Where()
    one = isinstance(found, list) and isinstance(expected, list)
    have = _entry(found, at) if one else found
    want = _entry(expected, at) if one else expected
    cause = "; a near-tie that the ranks resolve differently" if near_tie else ""
    place = f"{name}, row {where.row}" if by_node else name
    return Finding(
        check=ID,
        name=NAME,
        verdict=Verdict.FAULT,
        step=step.step,
        rank=rank,
        request=rid,
        diagnosis="rank-divergence",
        message=f"rank {rank} differs from rank {reference} in {place}: {have}, should be {want}{cause}",
        hint=HINT,
        effect=Effect.HANG,
        where=where,
        expected=want,
        found=have,
        count=int(np.sum(_unequal(found, expected))) if one else 1,
    )


def _entry(values: object, at: int) -> int | None:
    return int(values[at]) if isinstance(values, list) and at < len(values) else None


def _unequal(found: object, expected: object) -> list[bool]:
    if not isinstance(found, list) or not isinstance(expected, list):
        return [True]
    longest = max(len(found), len(expected))
    return [_entry(found, i) != _entry(expected, i) for i in range(longest)]
