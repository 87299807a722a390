"""What is typed into the form, and what is said of cells. Run: pytest tests/workbench/test_lab_words.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from lab_sample import GARBLED, HOSTILE, PARTED, PLAIN, SMALL, compared, story

from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.verdict import Kind, Verdict
from workbench import lab_values
from workbench.lab_texts import ENDS, LONGEST, marked
from workbench.lab_words import cell_words, facts, request_words, subject_lines
from workbench.panes.lab_verdict import headline_of
from workbench.verdict import Level

FIRST = next(iter(SMALL))


def test_lists_are_read_as_they_are_shown() -> None:
    assert lab_values.whole_numbers("budgets", " 7,16 ") == (7, 16)
    assert lab_values.caps("top-k", "1, all") == (1, None)
    assert lab_values.caps("top-k", lab_values.listed((4, None))) == (4, None)
    assert lab_values.numbers("temperatures", "0, 0.8") == (0.0, 0.8)
    assert lab_values.command("command", "run --name 'a b' \\\n {eager}") == (
        *("run", "--name", "a b", "{eager}"),
    )
    assert lab_values.environment("A=1\n\nB=x=y\n") == (("A", "1"), ("B", "x=y"))


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda: lab_values.whole_numbers("budgets", "7; 16"), "found '7; 16'"),
        (lambda: lab_values.whole_numbers("budgets", " "), "found nothing"),
        (lambda: lab_values.whole_numbers("budgets", "7,,8"), "found ''"),
        (lambda: lab_values.whole_numbers("budgets", "9" * 5000), "found '9999"),
        (lambda: lab_values.numbers("temperatures", "nan"), "found 'nan'"),
        (lambda: lab_values.command("command", "run 'a"), "No closing quotation"),
        (lambda: lab_values.environment("A"), "expected lines NAME=value, found 'A'"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(read: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        read()
    assert said in str(caught.value)
    assert len(str(caught.value)) < 120


def test_the_first_difference_is_marked_in_both_texts() -> None:
    tree, plain = marked(compared(text=GARBLED, at=PARTED))
    assert tree == "The ocean is ⟦abuma⟧ abuma poemowners"
    assert plain.startswith("The ocean is ⟦wide⟧ and deep,\nIt sings")


def test_a_text_that_ends_first_says_so() -> None:
    tree, plain = marked(compared(text=PLAIN[:5], at=1))
    assert tree == PLAIN[:5] + ENDS
    assert plain == f"The o⟦cean⟧{PLAIN[9:]}"


def test_the_same_letters_from_other_tokens_are_not_marked() -> None:
    assert marked(compared(text=PLAIN, at=4)) == (PLAIN, PLAIN)


def test_texts_are_cut_and_made_legible() -> None:
    tree, _ = marked(compared(text="a" * (LONGEST + 7)))
    assert tree.endswith("… 7 characters more")
    assert "\u202e" not in marked(compared(text=HOSTILE))[0]


def test_words_of_a_request() -> None:
    assert request_words(compared()) == [
        *("plain decoding's text, token by token", "both runs alike", "2.50 tokens a step"),
    ]
    told = request_words(compared(text=GARBLED, at=PARTED, repeats=False, plain_parts=9))
    assert told[0] == "leaves plain decoding's text at token 3"
    assert told[1:3] == ["plain decoding prefers its own token there by 6.25", "no near-tie"]
    assert "plain decoding differs from itself at token 9" in told
    assert "the second run gave another text" in told


def test_words_of_a_cell() -> None:
    assert cell_words(FIRST) == "budget 7, top-k 1, graphs off, batch 1, prompt 0"
    assert cell_words(replace(FIRST, seed=3)).endswith("prompt 0, seed 3")
    assert facts(replace(story(FIRST), findings=None))[-1] == "not checked"
    assert facts(story(replace(FIRST, budget=16)))[-1] == "6 findings of 1 check"


def test_the_subject_in_lines() -> None:
    subject = ServerSubject(("run", "a b"), ("plain",), environment=(("KEY", "v"),))
    lines = subject_lines(Experiment(SMALL, subject))
    assert {"command: run 'a b'", "environment: KEY=v", "new tokens: 12"} <= set(lines)


def test_a_clean_part_is_not_green() -> None:
    verdict = Verdict(Kind.CLEAN, "Clean: 2 cells.")
    assert headline_of(verdict, 2, 0).level is Level.CLEAN
    partly = headline_of(verdict, 2, 14)
    assert partly.level is Level.EMPTY
    assert partly.detail == "So far: 14 cells of 16 not measured."
    wrong = headline_of(Verdict(Kind.WRONG, "Wrong here; look there; 2 pairs."), 2, 0)
    assert (wrong.level, wrong.sentence) == (Level.FAULT, "Wrong here")
    assert wrong.detail == "Look there; 2 pairs."
