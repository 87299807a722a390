"""Pairs of measured cells that differ for one prompt in one thing, and cells that would tell conditions apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator

from engine.isolate.cell import Cell, Factor, Value
from engine.isolate.experiment import Experiment
from engine.isolate.predicates import Condition
from engine.isolate.seen import Seen, of_cell
from engine.isolate.verdict import Pair

MOST_MISSING = 4


def proof(
    condition: Condition, broken: Collection[Seen], right: Collection[Seen]
) -> tuple[Pair, ...]:
    """Broken where the condition holds, right where it does not, and all else the same."""
    outside = _Near([good for good in right if not condition.holds(good)])
    found = (
        Pair(factor, bad.cell, good.cell, bad.prompt)
        for bad in filter(condition.holds, broken)
        for _, good in outside.of(bad)
        if (factor := _one(bad, good))
    )
    return tuple(dict.fromkeys(found))


def without_effect(
    condition: Condition, broken: Collection[Seen], quiet: Collection[Seen] = ()
) -> tuple[Pair, ...]:
    """Broken in both, although a factor differs that the condition does not ask for: one pair a factor.

    ``quiet``: right ones within the condition. A factor in which as many pairs are broken and right as are broken in
    both may well matter.
    """
    found: dict[Factor, Pair] = {}
    alike: Counter[Factor] = Counter()
    near = _Near(broken)
    for number, bad in enumerate(broken):
        for later, other in near.of(bad):
            factor = _one(bad, other) if later > number else None
            if factor is None or factor in condition.factors:
                continue
            alike[factor] += 1
            found.setdefault(factor, Pair(factor, bad.cell, other.cell, bad.prompt))
    right = _Near(quiet)
    unlike = Counter(_one(bad, good) for bad in broken for _, good in right.of(bad))
    return tuple(pair for factor, pair in found.items() if alike[factor] > unlike[factor])


def missing(
    experiment: Experiment,
    broken: Collection[Seen],
    measured: Collection[Cell],
    best: Condition,
    rivals: Iterable[Condition],
    proved: bool,
) -> tuple[Cell, ...]:
    """A few cells that are not measured and on which conditions differ; next to a broken one each."""
    prompts = len(experiment.matrix.prompts)
    near = [cell for cell in neighbours(experiment, broken) if cell not in measured]

    def differ(cell: Cell, rival: Condition) -> bool:
        return any(best.holds(s) != rival.holds(s) for s in of_cell(cell, prompts))

    found: list[Cell] = []
    if not proved:
        found += [c for c in near if not any(map(best.holds, of_cell(c, prompts)))][:1]
    for rival in rivals:
        if not any(differ(cell, rival) for cell in found):
            found += [cell for cell in near if differ(cell, rival)][:1]
    return tuple(dict.fromkeys(found))[:MOST_MISSING]


def neighbours(experiment: Experiment, broken: Iterable[Seen]) -> Iterator[Cell]:
    """Cells that differ in one factor: values of the matrix first, then others that mean something to a step."""
    matrix, size = experiment.matrix, experiment.subject.block_size or 8
    values: dict[Factor, tuple[Value, ...]] = {
        Factor.BUDGET: (*matrix.budgets, size - 1, max(1, size // 2), 2 * size),
        Factor.TOPK: (*matrix.topks, 1, 2, 4),
        Factor.GRAPHS: (False, True),
        Factor.BATCH: (*matrix.batches, 1, 2, 3),
        Factor.PROMPT: tuple(range(len(matrix.prompts))),
        Factor.TEMPERATURE: matrix.temperatures,
        Factor.SEED: matrix.seeds,
    }
    cells = [*(seen.alone for seen in broken), *(seen.cell for seen in broken)]
    for cell in dict.fromkeys(cells):
        for factor, others in values.items():
            yield from (cell.with_value(factor, v) for v in others if v != cell.value(factor))


class _Near:
    """Requests by what they have in common: those that differ in one thing are looked up, not searched for."""

    def __init__(self, among: Iterable[Seen]) -> None:
        self._among = list(among)
        self._index: dict[tuple[Value, ...], list[int]] = defaultdict(list)
        for number, seen in enumerate(self._among):
            for key in _keys(seen):
                self._index[key].append(number)

    def of(self, seen: Seen) -> Iterator[tuple[int, Seen]]:
        """With their numbers, in order; some may differ in more."""
        numbers = {n for key in _keys(seen) for n in self._index.get(key, ())}
        yield from ((n, self._among[n]) for n in sorted(numbers))


def _keys(seen: Seen) -> list[tuple[Value, ...]]:
    """All its values but one, for each."""
    alone = seen.alone
    values = [alone.value(factor) for factor in Factor]
    return [(k, *values[:k], *values[k + 1 :]) for k in range(len(values))]


def _one(left: Seen, right: Seen) -> Factor | None:
    differs = left.differs_in(right)
    return differs[0] if len(differs) == 1 else None
