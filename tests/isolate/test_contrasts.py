"""Pairs that are looked up are those that a search over all finds. Run: pytest tests/isolate/test_contrasts.py."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import pytest

from engine.isolate.contrasts import proof, without_effect
from engine.isolate.experiment import Experiment
from engine.isolate.hangs_on import explain
from engine.isolate.matrix import Matrix
from engine.isolate.predicates import ALWAYS, Condition, conditions
from engine.isolate.seen import Seen, of_cell
from engine.isolate.verdict import Pair

MATRIX = Matrix(budgets=(7, 15, 16), topks=(1, 4, None), batches=(1, 2, 3), seeds=(0, 1))


def one(left: Seen, right: Seen) -> object:
    differs = left.differs_in(right)
    return differs[0] if len(differs) == 1 else None


@pytest.mark.parametrize("seed", range(4))
def test_looking_up_finds_what_searching_finds(seed: int) -> None:
    chance = random.Random(seed)
    seen = [s for cell in MATRIX for s in of_cell(cell, len(MATRIX.prompts))]
    seen = chance.sample(seen, 150)
    broken, right = seen[:70], seen[70:]
    for condition in (ALWAYS, *chance.sample(list(conditions(Experiment(MATRIX))), 5)):
        expected = [
            Pair(factor, bad.cell, good.cell, bad.prompt)
            for bad, good in product(broken, right)
            if (factor := one(bad, good)) and condition.holds(bad) and not condition.holds(good)
        ]
        assert proof(condition, broken, right) == tuple(dict.fromkeys(expected))
        effects: dict[object, Pair] = {}
        for bad, other in combinations(broken, 2):
            factor = one(bad, other)
            if factor and factor not in condition.factors:
                effects.setdefault(factor, Pair(factor, bad.cell, other.cell, bad.prompt))
        assert without_effect(condition, broken) == tuple(effects.values())


def test_each_condition_is_asked_once_of_a_text() -> None:
    """Conjunctions are many: asking each of them of each text took minutes for a matrix of 64 by 64."""
    asked: Counter[tuple[str, int]] = Counter()  # two may have one text: "temperature 0"

    def counted(condition: Condition) -> Condition:
        def holds(seen: Seen) -> bool:
            asked[condition.text, condition.rank] += 1
            return condition.holds(seen)

        return replace(condition, holds=holds)

    seen = [s for cell in MATRIX for s in of_cell(cell, len(MATRIX.prompts))]
    bad = [s for s in seen if s.cell.graphs]
    right = [s for s in seen if not s.cell.graphs]
    known = [counted(c) for c in conditions(Experiment(MATRIX))]
    assert explain(bad, right, known).best.text == "graphs on"
    del asked["graphs on", 0]  # of the best one it is asked again which right texts it holds
    assert set(asked.values()) == {len(seen)}
