"""Which condition explains the broken texts: every broken one lies within it, few right ones do, and it is short.

A broken text outside a condition refutes it. A right one inside does not: a wrong mask leaves many a text as it was
(one in ``1 / (1 - SHOWS)``, say), so each costs, and a condition that has none wins over one that has some.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import combinations

from engine.isolate.predicates import ALWAYS, Condition
from engine.isolate.seen import Seen

SHOWS = 0.8  # share of the texts with a fault that differ
WORD = 2.0  # nats that each condition of a conjunction costs
QUIET = -math.log(1.0 - SHOWS)
ALIKE = 0.5  # nats: closer than that is not told apart


@dataclass(frozen=True)
class Explained:
    """The best condition, and others that fit as well."""

    best: Condition
    rivals: tuple[Condition, ...]
    quiet: tuple[Seen, ...]  # right ones within the best


def explain(
    broken: Collection[Seen], right: Collection[Seen], known: Iterable[Condition]
) -> Explained:
    """``broken`` is not empty."""
    atoms = [c for c in known if any(map(c.holds, broken))]
    pairs = [a & b for a, b in combinations(atoms, 2) if not set(a.factors) & set(b.factors)]
    fitting = [c for c in (ALWAYS, *atoms, *pairs) if all(map(c.holds, broken))]
    ranked = sorted(fitting, key=lambda c: _cost(c, right))
    best = ranked[0]
    least = _cost(best, right)[0]
    rivals = tuple(c for c in ranked[1:] if _cost(c, right)[0] < least + ALIKE)
    return Explained(best, rivals, tuple(seen for seen in right if best.holds(seen)))


def _cost(condition: Condition, right: Collection[Seen]) -> tuple[float, int]:
    quiet = sum(map(condition.holds, right))
    return condition.words * WORD + quiet * QUIET, condition.rank
