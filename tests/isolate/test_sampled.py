"""A sampled text of a server is neither right nor wrong, unless it equals plain decoding's."""

from dataclasses import replace

import pytest

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.judge import judge
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Compared, Measured
from engine.isolate.outcome import BROKEN, RIGHT, Outcome, outcomes
from engine.isolate.verdict import Kind
from tests.isolate.serving import outcome
from workbench.isolate_words import LETTER

CELL = Cell(7, 1, False, 1, 0, 0.8, 0)
SAMPLED = Compared("p", "a b", "a c", (1, 2), (1, 3), first_difference=1, sampled=True)


@pytest.mark.parametrize("plain_parts", [None, 0, 1])
def test_a_text_that_differs_is_sampled_whatever_plain_decoding_does(
    plain_parts: int | None,
) -> None:
    request = replace(SAMPLED, plain_parts=plain_parts)
    found = outcome(Measured(CELL, (request,)))
    assert found is Outcome.SAMPLED
    assert found not in (*RIGHT, *BROKEN)


def test_a_text_that_equals_plain_decodings_is_clean() -> None:
    assert outcome(Measured(CELL, (replace(SAMPLED, first_difference=None),))) is Outcome.CLEAN


def test_a_wrong_request_beside_it_counts_more() -> None:
    wrong = replace(SAMPLED, sampled=False, margin=3.0, near_tie=False)
    assert outcome(Measured(CELL, (SAMPLED, wrong))) is Outcome.WRONG


def test_draws_that_differ_do_not_make_plain_decoding_unstable() -> None:
    drawn = Measured(CELL, (replace(SAMPLED, plain_parts=0),))
    greedy = replace(CELL, temperature=0.0)
    wrong = Measured(greedy, (replace(SAMPLED, sampled=False, margin=3.0, near_tie=False),))
    assert outcomes([drawn, wrong]) == {CELL: Outcome.SAMPLED, greedy: Outcome.WRONG}


def test_the_verdict_does_not_call_sampled_texts_clean() -> None:
    matrix = Matrix((7,), (1,), (False,), (1,), used_prompts=(0,), temperatures=(0.0, 0.8))
    greedy, drawn = matrix
    results = [
        Measured(greedy, (replace(SAMPLED, sampled=False, first_difference=None),)),
        Measured(drawn, (SAMPLED,)),
    ]
    verdict = judge(Experiment(matrix, ServerSubject(("serve",), ("serve",))), results)
    assert verdict.kind is Kind.SAMPLED
    assert verdict.sentence.startswith(
        "Nothing wrong was seen, but 1 of 2 cells cannot be judged: a server draws other random numbers"
    )
    assert set(LETTER) == set(Outcome)
