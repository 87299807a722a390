"""The lab on the real engine: faults that are found from behaviour alone, and clean runs that nothing is blamed for."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from engine.checks.registry import check_trace
from engine.isolate.experiment import Experiment
from engine.isolate.judge import judge
from engine.isolate.local import LocalMeasure, settings_of
from engine.isolate.matrix import Matrix
from engine.isolate.outcome import Outcome, outcomes
from engine.isolate.verdict import Kind
from engine.trace import open_trace
from tests.isolate.tiny_lab import MATRIX, load, run, subject

SMALL = Matrix((7, 16), (1, 4), (False,), (1,), MATRIX.prompts, (0,), max_new_tokens=12)
# What each fault hangs on, by what it does to a step (engine.faults), not by what the lab says.
FOUND = [
    ("verify-width", {"budget"}, "q_len ≠ block size 8"),
    ("kv-counts-draft", {"graphs"}, "graphs on"),
    ("stale-mask", {"graphs"}, "graphs on"),
    ("prefix-only-offsets", {"batch"}, "behind another request"),
    ("causal-mask", {"topk"}, "trees that branch"),
    ("flattened-positions", {"topk"}, "trees that branch"),
    ("bonus-stride", {"topk"}, "trees that branch"),
    ("crop-commit", {"topk"}, "trees that branch"),
    ("skip-last-layer", {"topk"}, "trees that branch"),
    ("padding-leak", {"budget", "topk"}, "a chain of 7 in more rows"),
    ("sibling-leak", {"topk"}, "trees that branch"),
    ("gather-twice", {"topk"}, "trees that branch"),
    ("shifted-logits", set(), "in every cell"),
    ("slot-in-prefix", set(), "in every cell"),
    ("dropped-token", set(), "in every cell"),
]


@pytest.mark.parametrize(("fault", "factors", "condition"), FOUND)
def test_the_factor_of_a_fault_from_behaviour_alone(
    fault: str, factors: set[str], condition: str, tmp_path: Path
) -> None:
    what = subject(fault=fault)
    matrix = MATRIX if factors - {"topk"} else replace(MATRIX, graphs=(False,))
    results = run(matrix, what, tmp_path)
    assert all(r.findings is None and r.trace is None for r in results), "the checks are off"
    verdict = judge(Experiment(matrix, what), results)
    assert verdict.kind is Kind.WRONG
    assert verdict.cause is None
    assert ({str(f) for f in verdict.factors}, verdict.condition) == (factors, condition)
    assert bool(verdict.proof) == bool(factors)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_nothing_is_blamed_on_a_clean_engine(temperature: float, tmp_path: Path) -> None:
    matrix = replace(MATRIX, temperatures=(temperature,), seeds=(5,), batches=(2,))
    matrix = replace(matrix, graphs=(temperature > 0,))
    verdict = judge(Experiment(matrix, subject()), run(matrix, subject(), tmp_path))
    assert verdict.kind is Kind.CLEAN
    assert verdict.sentence == "Clean: 8 cells, every text is plain decoding's, token by token."


def test_the_checks_put_their_cause_beside_it(tmp_path: Path) -> None:
    what = subject(fault="verify-width", checks=True)
    results = run(SMALL, what, tmp_path)
    verdict = judge(Experiment(SMALL, what), results)
    assert verdict.cause == "width-mismatch in 2 of 2 cells and in no other"
    for result in results:
        report = check_trace(open_trace(tmp_path / str(result.trace)))
        assert sum((result.findings or {}).values()) == len(report.causes)
        assert (result.cell.budget == 16) == bool(report.causes)
        assert (result.sentence is None) == (not report.causes)


def test_what_a_wrong_cell_says_of_its_texts(tmp_path: Path) -> None:
    results = run(SMALL, subject(fault="verify-width"), tmp_path)
    (broken,) = [r for r in results if r.cell.budget == 16 and r.cell.topk == 1]
    (request,) = broken.requests
    place = request.first_difference
    assert place is not None
    assert request.tokens is not None
    assert request.plain_tokens is not None
    assert request.tokens[:place] == request.plain_tokens[:place]
    assert request.tokens[place : place + 1] != request.plain_tokens[place : place + 1]
    assert request.margin is not None
    assert request.margin > 0
    assert (request.near_tie, request.repeats, request.plain_parts) == (False, True, None)
    assert request.text != request.plain_text


@pytest.mark.parametrize("wrong", [0, 1])
def test_the_run_that_parts_first_is_told_and_plain_decoding_that_parts_from_itself(
    wrong: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of both runs writes another token at 3; the second plain text has another one at 5."""
    import engine.isolate.local as module

    true_run = module._run

    def altered(tokens: tuple[int, ...], place: int) -> tuple[int, ...]:
        return (*tokens[:place], (tokens[place] + 1) % 40, *tokens[place + 1 :])

    def run_otherwise(settings, target, trace, report, number):
        ran = true_run(settings, target, trace, report, number)
        (request,) = ran.summary.requests
        if number == wrong:
            request = replace(request, tree_tokens=altered(request.tree_tokens, 3), tree_text="X")
        if number == 1:
            request = replace(request, plain_tokens=altered(request.plain_tokens, 5))
        return replace(ran, summary=replace(ran.summary, requests=(request,)))

    monkeypatch.setattr(module, "_run", run_otherwise)
    measure = LocalMeasure(SMALL, subject(), tmp_path, load=load)
    (request,) = measure.measure(next(iter(SMALL)), lambda words, share: None).requests
    assert (request.first_difference, request.text, request.repeats) == (3, "X", False)
    assert (request.plain_parts, request.plain_near_tie) == (5, False)
    assert request.margin is not None
    assert request.margin > 0


def test_a_cell_that_the_engine_cannot_run_is_an_error_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engine.isolate.local as module

    def broken(settings, target, trace, report, number):
        if settings.budget == 16:
            raise RuntimeError("index 99 is out of bounds")
        return true_run(settings, target, trace, report, number)

    true_run = module._run
    monkeypatch.setattr(module, "_run", broken)
    results = run(SMALL, subject(), tmp_path)
    found = outcomes(results)
    assert [found[c] is Outcome.FAILED for c in SMALL] == [False, False, True, True]
    verdict = judge(Experiment(SMALL, subject()), results)
    assert verdict.kind is Kind.FAILED
    assert verdict.sentence.startswith("Fails only where q_len ≠ block size 8 (2 of 4 cells)")
    assert results[2].error == "RuntimeError: index 99 is out of bounds"


def test_recordings_are_never_written_over(tmp_path: Path) -> None:
    measure = LocalMeasure(SMALL, subject(checks=True), tmp_path, load=load)
    cell = next(iter(SMALL))
    names = [measure.measure(cell, lambda words, share: None).trace for _ in range(2)]
    assert names == ["b7-k1-eager-n1-p0.ddtree.arrow", "b7-k1-eager-n1-p0.1.ddtree.arrow"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, names))


def test_a_fault_of_replays_is_not_in_eager_cells() -> None:
    what = subject(fault="stale-mask")
    for cell in MATRIX:
        assert settings_of(MATRIX, what, cell).fault == ("stale-mask" if cell.graphs else None)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (subject(fault="nope"), "cell b7-k1-eager-n1-p0: fault: expected one of verify-width"),
        (
            subject(captured_bs=1),
            "cell b7-k1-graphs-n2-p0: captured_bs: expected at least 2, found 1",
        ),
        (subject(backend="magic"), "cell b7-k1-eager-n1-p0: backend: expected one of"),
        (subject(drafter="nowhere"), "cell b7-k1-eager-n1-p0: drafter: expected one of"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_loaded(
    what, words: str, tmp_path: Path
) -> None:
    def never(name: str, **settings: object):
        raise AssertionError("loaded")

    with pytest.raises(ValueError, match=re.escape(words)):
        LocalMeasure(MATRIX, what, tmp_path, load=never)


def test_stopping_in_the_middle_of_a_cell(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    said: list[tuple[str, float]] = []

    def report(words: str, share: float) -> None:
        said.append((words, share))
        if share > 0.6:
            raise Stop

    measure = LocalMeasure(SMALL, subject(checks=True), tmp_path, load=load)
    with pytest.raises(Stop):
        measure.measure(next(iter(SMALL)), report)
    shares = [share for _, share in said]
    assert shares == sorted(shares)
    assert said[-1][0].startswith("run 2 of 2")
