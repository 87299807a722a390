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
EVEN_SO = 1.0  # nats that it costs to blame every cell although a text is right: one such is dearer than a word


@dataclass(frozen=True)
class Explained:
    """The best condition, and others that fit the measured cells as well."""

    best: Condition
    rivals: tuple[Condition, ...]
    quiet: tuple[Seen, ...]  # right ones within the best
    fits: bool  # it says more than chance would among so many conditions


def explain(
    broken: Collection[Seen], right: Collection[Seen], known: Iterable[Condition]
) -> Explained:
    """``broken`` is not empty. In which texts a condition holds is asked once, a bit a text."""
    texts, some = (*broken, *right), (1 << len(right)) - 1
    every_broken = (1 << len(texts)) - 1 - some

    def where(condition: Condition) -> int:
        return int("".join("01"[condition.holds(seen)] for seen in texts), 2)

    atoms = [(c, where(c)) for c in known]
    atoms = [(c, bits) for c, bits in atoms if bits & every_broken]
    pairs = [
        (a & b, bits & others)
        for (a, bits), (b, others) in combinations(atoms, 2)
        if not set(a.factors) & set(b.factors)
    ]
    every = [(ALWAYS, where(ALWAYS)), *atoms, *pairs]
    costs = [
        (_cost(c, (bits & some).bit_count(), bool(right)), c)
        for c, bits in every
        if bits & every_broken == every_broken
    ]
    costs.sort(key=lambda pair: pair[0])
    (least, _), best = costs[0]
    rivals = tuple(c for (cost, _), c in costs[1:] if cost < least + ALIKE)
    quiet = tuple(seen for seen in right if best.holds(seen))
    tried = {bits for c, bits in every if 0 < c.words <= best.words}
    return Explained(best, rivals, quiet, _fits(best, broken, right, len(tried)))


def _cost(condition: Condition, quiet: int, some_right: bool) -> tuple[float, int]:
    even_so = EVEN_SO if condition is ALWAYS and some_right else 0.0
    return condition.words * WORD + quiet * QUIET + even_so, condition.rank


def _fits(
    best: Condition,
    broken: Collection[Seen],
    right: Collection[Seen],
    tried: int,
) -> bool:
    """Whether the cells within the best condition are broken more often than chance, ``tried`` conditions tried.

    Cells are counted, not texts: those of one cell go wrong together.
    """
    bad = {seen.cell for seen in broken}
    inside = bad | {seen.cell for seen in right if best.holds(seen)}
    whole = bad | {seen.cell for seen in right}
    if inside == whole:
        return 3 * len(bad) >= 2 * len(whole)  # what holds in all should show in most
    gain = _likelihood(len(bad), len(inside)) - _likelihood(len(bad), len(whole))
    return gain >= math.log(tried)


def _likelihood(broken: int, cells: int) -> float:
    """Of ``broken`` among ``cells`` at their own rate, in nats."""
    right = cells - broken
    return sum(n * math.log(n / cells) for n in (broken, right) if n)
