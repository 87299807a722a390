"""What the verdict blames, over random experiments whose fault is known, and what it must not blame."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.isolate.cell import Cell, Factor
from engine.isolate.contrasts import without_effect
from engine.isolate.experiment import Experiment, LocalSubject, ServerSubject
from engine.isolate.judge import judge
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome
from engine.isolate.predicates import ALWAYS
from engine.isolate.seen import Seen, of_cell
from engine.isolate.verdict import Kind, Pair
from tests.isolate.results import OF, WRONG, measured

MATRIX = Matrix((7, 16), (1, 4), (False, True), (1, 3), ("a", "b"), (0, 1))
EXPERIMENT = Experiment(MATRIX, LocalSubject())
B, K, G, N, P = Factor.BUDGET, Factor.TOPK, Factor.GRAPHS, Factor.BATCH, Factor.PROMPT
Broken = Callable[[Seen], bool]
FAULTS: list[tuple[str, set[Factor], Broken]] = [
    ("q_len ≠ block size 8", {B}, lambda s: s.cell.budget == 16),
    ("trees that branch", {K}, lambda s: s.cell.topk == 4),
    ("chains", {K}, lambda s: s.cell.topk == 1),
    ("graphs on", {G}, lambda s: s.cell.graphs),
    ("graphs off", {G}, lambda s: not s.cell.graphs),
    ("several requests", {N}, lambda s: s.cell.batch == 3),
    ("a chain of 7 in more rows", {B, K}, lambda s: s.cell.topk == 1 and s.cell.budget == 16),
    ("padded replays", {G, N}, lambda s: s.cell.graphs and s.cell.batch == 3),
    ("in every cell", set(), lambda s: True),
]
TEXTS: list[tuple[str, set[Factor], Broken]] = [
    ("behind another request", {N}, lambda s: s.place > 0),
    ("prompt 1", {P}, lambda s: (s.cell.prompt + s.place) % 2 == 1),
]


def result(cell: Cell, broken: Broken, bad: Outcome) -> Measured:
    """Each request broken or not; an error or a low acceptance is the whole cell's."""
    wrong = [broken(seen) for seen in of_cell(cell, 2)]
    if bad is not Outcome.WRONG:
        return measured(cell, bad if any(wrong) else Outcome.CLEAN)
    return Measured(cell, tuple(OF[bad if w else Outcome.CLEAN] for w in wrong), 1.0)


def results(broken: Broken, bad: Outcome = Outcome.WRONG) -> list[Measured]:
    return [result(cell, broken, bad) for cell in MATRIX]


def holds(broken: Broken, cell: Cell, pair: Pair) -> set[bool]:
    """Of the prompt that the pair compares; of any where it compares prompts."""
    texts = [(broken(s), (cell.prompt + s.place) % 2) for s in of_cell(cell, 2)]
    return {b for b, prompt in texts if pair.factor is P or prompt == pair.prompt}


@pytest.mark.parametrize(
    ("fault", "bad"),
    [(f, bad) for f in FAULTS for bad in (Outcome.WRONG, Outcome.FAILED, Outcome.SLOW)]
    + [(f, Outcome.WRONG) for f in TEXTS],
)
def test_each_condition_is_named(fault: tuple[str, set[Factor], Broken], bad: Outcome) -> None:
    condition, factors, broken = fault
    verdict = judge(EXPERIMENT, results(broken, bad))
    assert (verdict.condition, set(verdict.factors)) == (condition, factors)
    assert verdict.kind == {"wrong": Kind.WRONG, "failed": Kind.FAILED}.get(bad.value, Kind.SLOW)
    for pair in verdict.proof:
        assert True in holds(broken, pair.broken, pair)
        assert False in holds(broken, pair.other, pair)
        assert set(pair.broken.differs_in(pair.other)) <= {pair.factor, Factor.PROMPT}
    assert bool(verdict.proof) == bool(factors)
    for pair in verdict.without_effect:
        assert True in holds(broken, pair.broken, pair)
        assert True in holds(broken, pair.other, pair)
        assert set(pair.broken.differs_in(pair.other)) <= {pair.factor, Factor.PROMPT}
        assert pair.factor not in factors
    assert not set(verdict.missing) & set(MATRIX)


@pytest.mark.parametrize("budgets", [(7, 16), (7, 16, 4), (16, 7, 32, 24)])
def test_a_small_matrix_with_one_right_cell_blames_what_tells_it_apart(
    budgets: tuple[int, ...],
) -> None:
    """One right text is not luck when its whole cell has another budget."""
    matrix = Matrix(budgets, (1,), (False,), (1,), ("a",), (0,))
    found = [measured(c, Outcome.CLEAN if c.budget == 7 else Outcome.WRONG) for c in matrix]
    verdict = judge(Experiment(matrix), found)
    assert (verdict.condition, verdict.factors) == ("q_len ≠ block size 8", (B,))
    assert {pair.other.budget for pair in verdict.proof} == {7}
    assert "whatever" not in verdict.sentence


@pytest.mark.parametrize(("share", "everywhere"), [(0.55, False), (0.6, False), (0.8, True)])
def test_what_half_of_the_cells_show_is_not_called_everywhere(
    share: float, everywhere: bool
) -> None:
    """Broken here and there, as noise is; what holds in every cell shows in most of them."""
    cells = list(MATRIX)
    shown = set(random.Random(3).sample(cells, round(share * len(cells))))
    found = [measured(c, Outcome.SLOW if c in shown else Outcome.CLEAN) for c in cells]
    assert ("whatever is varied" in judge(EXPERIMENT, found).sentence) == everywhere


def test_a_slow_experiment_is_not_told_of_right_texts() -> None:
    slow = [
        measured(c, Outcome.CLEAN if c.budget == 7 and c.graphs else Outcome.SLOW) for c in MATRIX
    ]
    sentence = judge(EXPERIMENT, slow).sentence
    assert "right all the same" not in sentence
    every = judge(EXPERIMENT, [measured(c, Outcome.SLOW) for c in MATRIX]).sentence
    assert "look at what a step costs and accepts beside a step of plain decoding" in every


def test_another_prompt_of_a_batch_is_not_blamed_on_the_batch() -> None:
    """Prompt 1 alone shows the fault, and was decoded behind prompt 0 only."""
    matrix = Matrix((7,), (1,), (False,), (1, 2), ("a", "b"), (0,))
    alone, both = matrix
    found = [measured(alone, Outcome.CLEAN), Measured(both, (OF[Outcome.CLEAN], WRONG), 1.0)]
    verdict = judge(Experiment(matrix), found)
    assert verdict.proof == ()
    assert "no two cells that differ in one thing alone prove it yet" in verdict.sentence
    assert both.with_value(Factor.BATCH, 1).with_value(Factor.PROMPT, 1) in verdict.missing


@given(st.data())
def test_a_fault_that_some_texts_do_not_show(data: st.DataObject) -> None:
    """One text with the fault is right by luck: the condition still is the fault's."""
    condition, factors, broken = data.draw(st.sampled_from([*FAULTS[:6], *TEXTS]))
    having = [seen for cell in MATRIX for seen in of_cell(cell, 2) if broken(seen)]
    lucky = set(data.draw(st.lists(st.sampled_from(having), max_size=1)))
    verdict = judge(EXPERIMENT, results(lambda s: broken(s) and s not in lucky))
    assert (verdict.condition, set(verdict.factors)) == (condition, factors)
    assert ("1 text is right all the same" in verdict.sentence) == bool(lucky)


@given(
    st.lists(st.sampled_from(list(MATRIX)), unique=True, min_size=1),
    st.sampled_from([*FAULTS, *TEXTS]),
)
def test_whatever_part_was_measured(cells: list[Cell], fault) -> None:
    """Any part of an experiment gets a verdict that its own cells do not contradict."""
    _, _, broken = fault
    verdict = judge(EXPERIMENT, [result(cell, broken, Outcome.WRONG) for cell in cells])
    assert (verdict.kind is Kind.CLEAN) == (
        not any(broken(seen) for cell in cells for seen in of_cell(cell, 2))
    )
    assert not set(verdict.missing) & set(cells)
    assert all({pair.broken, pair.other} <= set(cells) for pair in verdict.proof)


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        (Outcome.CLEAN, Kind.CLEAN),
        (Outcome.NEAR_TIE, Kind.NEAR_TIE),
        (Outcome.NONDETERMINISTIC, Kind.NONDETERMINISTIC),
    ],
)
@given(st.sets(st.sampled_from(list(MATRIX)), min_size=1))
def test_nothing_is_blamed_without_a_fault(others: Outcome, kind: Kind, odd: set[Cell]) -> None:
    found = [measured(c, others if c in odd else Outcome.CLEAN) for c in MATRIX]
    verdict = judge(EXPERIMENT, found)
    assert verdict.kind is kind
    assert (verdict.factors, verdict.condition, verdict.proof) == ((), None, ())
    assert judge(EXPERIMENT, []).kind is Kind.NOTHING


def test_the_story_in_one_sentence() -> None:
    matrix = Matrix((7, 16), (1, 4), (False, True), (1,), used_prompts=(0,))
    found = [
        measured(c, Outcome.WRONG, diagnoses={"width-mismatch": 9})
        if c.budget == 16
        else measured(c, Outcome.CLEAN)
        for c in matrix
    ]
    verdict = judge(Experiment(matrix), found)
    assert verdict.sentence == (
        "Wrong only where q_len ≠ block size 8 (4 of 8 cells); graphs and top-k do not matter; look at the width of a "
        "step: num_draft_tokens, mask strides, row offsets; 4 pairs prove it, alike in all but one thing; the checks "
        "say width-mismatch in 4 of 4 cells and in no other."
    )
    # Budget 16 is above the block size too: a smaller budget tells "other than" from "more than".
    assert [cell.budget for cell in verdict.missing] == [4]


def test_one_broken_cell_alone_asks_for_a_neighbour() -> None:
    cell = next(iter(MATRIX))
    verdict = judge(EXPERIMENT, [measured(cell, Outcome.WRONG)])
    assert verdict.kind is Kind.WRONG
    assert verdict.condition == "in every cell"
    assert "1 of 1 cell" in verdict.sentence


@given(st.permutations(list(MATRIX)), st.sampled_from([*FAULTS, *TEXTS]))
def test_the_order_in_which_cells_come_does_not_matter(cells: list[Cell], fault) -> None:
    broken = fault[2]
    found = [result(cell, broken, Outcome.WRONG) for cell in cells]
    assert judge(EXPERIMENT, found) == judge(EXPERIMENT, results(broken))


@pytest.mark.parametrize("bad", [Outcome.WRONG, Outcome.FAILED])
@given(st.sampled_from(list(MATRIX)))
def test_one_broken_cell_among_many_is_blamed_on_nothing(bad: Outcome, cell: Cell) -> None:
    found = [measured(c, bad if c == cell else Outcome.CLEAN) for c in MATRIX]
    verdict = judge(EXPERIMENT, found)
    assert (verdict.factors, verdict.condition, verdict.proof) == ((), None, ())
    word = {"wrong": "Wrong", "failed": "Fails"}[bad.value]
    assert verdict.sentence.startswith(
        f"{word} in 1 of 32 cells, and nothing that is varied tells in which"
    )


def test_two_cells_that_share_nothing_are_blamed_on_nothing() -> None:
    ends = first, last = next(iter(MATRIX)), list(MATRIX)[-1]
    assert first.differs_in(last) == (B, K, G, N, P)
    verdict = judge(
        EXPERIMENT, [measured(c, Outcome.WRONG if c in ends else Outcome.CLEAN) for c in MATRIX]
    )
    assert (verdict.factors, verdict.condition) == ((), None)
    assert verdict.sentence == (
        "Wrong in 2 of 32 cells, and nothing that is varied tells in which."
    )


def test_a_diagnosis_that_right_cells_have_too_is_no_cause() -> None:
    found = [
        measured(c, Outcome.WRONG if c.graphs else Outcome.CLEAN, diagnoses={"near": 1})
        for c in MATRIX
    ]
    assert judge(EXPERIMENT, found).cause is None


def test_findings_without_an_effect_are_not_passed_over() -> None:
    def found(effect: str):
        return [
            measured(c, Outcome.CLEAN, diagnoses={"stale-mask": 2}, effects={effect: 2})
            if c.graphs
            else measured(c, Outcome.CLEAN)
            for c in MATRIX
        ]

    latent, slow = judge(EXPERIMENT, found("output")), judge(EXPERIMENT, found("acceptance"))
    assert (latent.kind, slow.kind) == (Kind.LATENT, Kind.SLOW)
    assert latent.condition == slow.condition == "graphs on"
    assert latent.sentence.startswith("No text is wrong, yet the checks find a fault")


def test_a_server_without_a_known_block_size() -> None:
    subject = ServerSubject(("a",), ("b",))
    verdict = judge(Experiment(MATRIX, subject), results(lambda s: s.cell.budget == 16))
    assert (verdict.condition, verdict.factors) == ("budget 16", (Factor.BUDGET,))


def of_budgets(small: Outcome, large: Outcome, graphs: Outcome | None = None) -> list[Measured]:
    """``graphs``: of the small budget with graphs, where that differs."""
    return [
        measured(c, large if c.budget == 16 else graphs if c.graphs and graphs else small)
        for c in MATRIX
    ]


def test_failures_that_wrong_cells_do_not_explain_are_another_matter() -> None:
    both = judge(EXPERIMENT, of_budgets(Outcome.CLEAN, Outcome.FAILED, Outcome.WRONG))
    assert (both.kind, both.condition) == (Kind.WRONG, "graphs on")
    assert both.sentence.startswith("Wrong only where graphs on (8 of 32 cells); ")
    assert both.sentence.endswith("; 16 cells failed besides.")
    assert both.proof
    assert not any(pair.factor is G for pair in both.without_effect)


def test_failures_are_not_called_wrong() -> None:
    said = judge(EXPERIMENT, of_budgets(Outcome.WRONG, Outcome.FAILED)).sentence
    counts = "(32 of 32 cells, 16 of them failed)"
    assert said.startswith(f"Wrong or failed in every cell, whatever is varied {counts}; ")


def test_a_text_that_cannot_be_judged_did_not_fail() -> None:
    failed = judge(EXPERIMENT, of_budgets(Outcome.NONDETERMINISTIC, Outcome.FAILED))
    assert (failed.kind, failed.condition) == (Kind.FAILED, "q_len ≠ block size 8")
    assert failed.proof


def test_where_nothing_ran_the_trees_are_not_blamed() -> None:
    said = judge(EXPERIMENT, of_budgets(Outcome.FAILED, Outcome.FAILED)).sentence
    assert said.endswith("; look at the errors of the cells.")
    assert "verify" not in said


def test_in_every_cell_is_said_of_every_cell_alone() -> None:
    found = [
        measured(c, Outcome.CLEAN if k in (1, 6, 17, 28) else Outcome.WRONG)
        for k, c in enumerate(MATRIX)
    ]
    said = judge(EXPERIMENT, found).sentence
    assert said.startswith("Wrong whatever is varied (28 of 32 cells); ")


def test_a_factor_that_decides_in_as_many_pairs_is_not_said_not_to_matter() -> None:
    seen = [s for cell in MATRIX for s in of_cell(cell, 2) if cell.batch == 1]
    quiet = [s for s in seen if s.cell.budget == 7 and not s.cell.graphs]
    broken = [s for s in seen if s not in quiet]
    assert {p.factor for p in without_effect(ALWAYS, broken, quiet)} == {K, P}
