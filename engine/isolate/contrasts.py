"""Pairs of measured cells that differ in one thing, and cells whose measurement would tell conditions apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import product

from engine.isolate.cell import Cell, Factor, Value
from engine.isolate.experiment import Experiment
from engine.isolate.predicates import Condition
from engine.isolate.verdict import Pair

MOST_MISSING = 4


def proof(
    condition: Condition, broken: Collection[Cell], right: Collection[Cell]
) -> tuple[Pair, ...]:
    """Broken where the condition holds, right where it does not, and all else the same."""
    return tuple(
        Pair(factor, bad, good)
        for bad, good in product(broken, right)
        if (factor := _one(bad, good)) and condition.holds(bad) and not condition.holds(good)
    )


def without_effect(condition: Condition, broken: Collection[Cell]) -> tuple[Pair, ...]:
    """Broken in both, although a factor differs that the condition does not ask for: one pair a factor."""
    found: dict[Factor, Pair] = {}
    for bad, other in product(broken, repeat=2):
        factor = _one(bad, other)
        if factor and factor not in condition.factors and bad < other:
            found.setdefault(factor, Pair(factor, bad, other))
    return tuple(found.values())


def missing(
    experiment: Experiment,
    broken: Collection[Cell],
    measured: Collection[Cell],
    best: Condition,
    rivals: Iterable[Condition],
    proved: bool,
) -> tuple[Cell, ...]:
    """A few cells that are not measured and on which conditions differ; next to a broken one each."""
    near = [cell for cell in neighbours(experiment, broken) if cell not in measured]
    found: list[Cell] = []
    if not proved:
        found += [cell for cell in near if not best.holds(cell)][:1]
    for rival in rivals:
        if not any(best.holds(cell) != rival.holds(cell) for cell in found):
            found += [cell for cell in near if best.holds(cell) != rival.holds(cell)][:1]
    return tuple(dict.fromkeys(found))[:MOST_MISSING]


def neighbours(experiment: Experiment, cells: Iterable[Cell]) -> Iterator[Cell]:
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
    for cell in cells:
        for factor, others in values.items():
            yield from (cell.with_value(factor, v) for v in others if v != cell.value(factor))


def _one(left: Cell, right: Cell) -> Factor | None:
    differs = left.differs_in(right)
    return differs[0] if len(differs) == 1 else None
