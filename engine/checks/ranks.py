"""I19: all ranks of a step agree on tokens, predictions, accepted rows, bonus and length, request by request.

The reference is the group that most ranks belong to, or rank 0's. A near-tie that ranks resolve differently is a fault
all the same: they run apart from then on, and the next collective hangs. Requests that a rank does not have are not
compared: data-parallel ranks have their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import zip_longest

from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.checks.rank_views import View
from engine.checks.reference import margin_is_tiny

ID, NAME = "I19", "ranks"
HINT = "Decide on one rank and broadcast: tokens, predictions and accepted rows must not be computed twice."


def one_rank_alone(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """Nothing: a single record is compared with nobody. :func:`compare_ranks` is the check."""
    return ()


def compare_ranks(step: int, ranks: Mapping[int, Mapping[str, View]]) -> list[Finding]:
    """One finding a diverging rank and request of one step. ``ranks``: what each rank says, by request id."""
    out = []
    for rid in dict.fromkeys(rid for views in ranks.values() for rid in views):
        views = {rank: ranks[rank][rid] for rank in sorted(ranks) if rid in ranks[rank]}
        reference = _reference(views)
        for rank, view in views.items():
            finding = _difference(step, rid, rank, view, reference, views[reference])
            if finding is not None:
                out.append(finding)
    return out


def _reference(views: Mapping[int, View]) -> int:
    """Lowest rank of the largest group; the lowest rank of all where two groups are as large."""
    sizes = Counter(view.fields for view in views.values())
    largest = [fields for fields, size in sizes.items() if size == max(sizes.values())]
    if len(largest) > 1:
        return min(views)
    return min(rank for rank, view in views.items() if view.fields == largest[0])


def _difference(
    step: int, rid: str, rank: int, view: View, reference: int, right: View
) -> Finding | None:
    """The first field that differs, in the order of the comparison."""
    for (name, found), (_, expected) in zip(view.fields, right.fields, strict=True):
        if found is None or expected is None or found == expected:
            continue
        pairs = list(zip_longest(found, expected))
        wrong = [at for at, (have, want) in enumerate(pairs) if have != want]
        at, (have, want) = wrong[0], pairs[wrong[0]]
        tie = name == "predict" and is_near_tie(view, right, at)
        where = _where(name, view, at, have, want)
        place = name if where.row is None else f"{name}, row {where.row}"
        return Finding(
            check=ID,
            name=NAME,
            verdict=Verdict.FAULT,
            step=step,
            rank=rank,
            request=rid,
            diagnosis="rank-divergence",
            message=f"request {rid}: rank {rank} differs from rank {reference} in {place}: "
            f"{_plain(have)}, should be {_plain(want)}"
            + ("; a near-tie that the ranks resolve differently" if tie else ""),
            hint=HINT,
            effect=Effect.HANG,
            where=where,
            expected=want,
            found=have,
            count=len(wrong),
            consequence_of=view.cause_of(name, wrong, right),
        )
    return None


def _where(name: str, view: View, at: int, have: int | None, want: int | None) -> Where:
    """Tokens and predictions are by node; accepted nodes name the node; bonus and length have no place."""
    node = at if name in ("tokens", "predict") else None
    if name == "accepted":
        node = want if have is None else have
    return Where(node=node, row=None if node is None else view.first_row + node)


def _plain(value: int | None) -> str:
    return "nothing" if value is None else str(value)


def is_near_tie(view: View, right: View, at: int) -> bool:
    """Whether both ranks' two best tokens are each other's choices, within rounding of their logits' dtype."""
    sides, chosen = [], set()
    for side in (view, right):
        predict = side.field("predict")
        if side.top2 is None or at >= len(side.top2) or predict is None or at >= len(predict):
            return False
        sides.append(side.top2[at])
        chosen.add(float(predict[at]))
    if any(set(side[:, 0].tolist()) != chosen for side in sides):
        return False
    return all(margin_is_tiny(side[:, 1], view.logits_dtype) for side in sides)
