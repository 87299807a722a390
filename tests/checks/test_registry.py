"""Order, skipped checks, the step before, and steps of several ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.context import StepContext, lookup
from engine.checks.registry import CHECKS, TraceChecker, check_step, check_trace
from engine.step import Config, Request, Source, TreeRecord, VerifyStep
from tests.checks.build import batch, clean_steps, findings, skipped, spoil
from tests.checks.test_mask_content import old_block, second_step
from tests.factories import example_step, ints

NAMES = {
    "I1": "row-extents",
    "I2": "tree-size",
    "I3": "kv-extents",
    "I4": "mask-extents",
    "I5": "mask-packing",
    "I6": "capacity",
    "I7": "tree-form",
    "I8": "mask-content",
    "I9": "live-rows",
    "I10": "positions",
    "I11": "padding",
    "I12": "links",
    "I13": "acceptance",
    "I14": "bonus",
    "I15": "kv-commit",
    "I16": "write-slots",
    "I17": "recurrent-commit",
    "I18": "drafter-context",
    "I19": "ranks",
    "I20": "output",
    "I22": "reference",
}


def test_order_and_names() -> None:
    numbers = [int(spec.id[1:]) for spec in CHECKS]
    assert numbers == sorted(set(numbers))
    assert {spec.id: spec.name for spec in CHECKS} == NAMES


def test_findings_come_in_the_order_of_the_checks() -> None:
    step = spoil(
        batch(),
        ("commit.seq_lens.0", 1),
        ("inputs.positions.24", 9),
        ("requests.0.counted_nodes", 2),
        ("inputs.mask_indptr.3", 1),
        ("reference.target_predict.28", 1),
        ("reference.target_predict.3", 1),
    )
    assert [f.check for f in findings(step)] == ["I2", "I4", "I10", "I15", "I22"]


def bare(**groups: Any) -> VerifyStep:
    """A step with two trees and nothing else."""
    tree = TreeRecord(ints(-1, 0, 0, 2))
    return VerifyStep(requests=(Request("a", 2, tree), Request("b", 3, tree)), **groups)


SKIPPED = {
    "I1": "inputs.qo_indptr",
    "I2": "inputs.input_ids and requests.tree.tokens",
    "I3": "inputs.kv_indptr",
    "I4": "inputs.mask_indptr",
    "I5": "inputs.custom_mask",
    "I6": "config.mask_capacity",
    "I8": "inputs.custom_mask",
    "I9": "inputs.custom_mask",
    "I10": "inputs.positions",
    "I11": "inputs.positions",
    "I12": "links.retrieve_next_token",
    "I13": "outcome.target_predict and outcome.accept_index and requests.tree.tokens",
    "I14": "outcome.accept_index",
    "I15": "outcome.accept_index and commit.kv",
    "I16": "inputs.out_cache_loc",
    "I17": "outcome.accept_index and commit.recurrent_index",
    "I18": "outcome.accept_index and commit.hidden_rows",
    "I20": "outcome.emitted",
    "I22": "reference.target_predict and outcome.target_predict",
}


@pytest.mark.parametrize("steps", [1, 3])
def test_skipped_once_a_trace_with_the_missing_fields(steps: int) -> None:
    report = check_trace([bare()] * steps)
    assert report.findings == ()
    assert "tree-form" in report.checks
    mine = {f.check: f for f in report.skipped if f.check in SKIPPED}
    assert set(mine) == set(SKIPPED)
    assert len(report.skipped) == len({f.check for f in report.skipped})
    for check, fields in SKIPPED.items():
        assert f"lacked inputs: needs {fields}" in mine[check].message
        assert (mine[check].verdict, mine[check].effect) == ("skipped", "none")
        assert (mine[check].step, mine[check].rank, mine[check].request) == (None, None, None)
        assert mine[check].diagnosis is None


@pytest.mark.parametrize(
    ("path", "check"),
    [
        ("inputs.custom_mask", "I8"),
        ("inputs.positions", "I10"),
        ("outcome.accept_index", "I14"),
        ("reference.target_predict", "I22"),
    ],
)
def test_one_missing_field_skips_its_check(path: str, check: str) -> None:
    step = spoil(batch(), (path, None))
    assert check in skipped(step)
    assert all(path in message for message in skipped(step).values())
    assert findings(step) == []


def test_a_check_that_ran_on_one_step_is_not_skipped() -> None:
    assert skipped(bare(), spoil(batch(), ("step", 1))) == {}


def test_a_field_of_any_request_counts() -> None:
    step = spoil(batch(), ("requests.1.counted_nodes", 7))
    assert lookup(step, "requests.counted_nodes") == 7
    assert lookup(bare(), "requests.counted_nodes") is None
    assert lookup(VerifyStep(requests=()), "requests.tree") is None


@pytest.mark.parametrize("rows", ["static", None])
def test_without_the_budget_rows_are_not_guessed(rows: str | None) -> None:
    """The batch has padding rows, which only the budget tells."""
    step = spoil(batch(), ("config.budget", None), ("config.verify_rows", rows))
    assert findings(step) == []
    messages = skipped(step)
    assert set(messages) == {"I4", "I8", "I10", "I13", "I14", "I15", "I22"}
    assert all("config.budget" in message for message in messages.values())


def test_without_the_budget_one_row_a_node_is_enough() -> None:
    step = spoil(example_step(), ("config.budget", None))
    assert check_trace([step]).findings == ()
    wrong = spoil(step, ("inputs.positions.2", 9))
    assert [f.check for f in findings(wrong)] == ["I10"]


def test_no_settings_at_all() -> None:
    step = spoil(example_step(), ("config", Config()), ("source", Source()))
    assert findings(step) == []


def test_a_step_without_requests() -> None:
    empty = VerifyStep(requests=())
    assert check_trace([empty]).findings == ()
    assert findings(spoil(batch(), ("requests", ()), ("source", Source()))) != []


def test_no_steps() -> None:
    report = check_trace([])
    assert (report.findings, report.skipped, report.steps, report.checks) == ((), (), 0, ())


def diagnoses(*steps: VerifyStep) -> list[str | None]:
    return [f.diagnosis for f in findings(*steps) if f.step == 1]


FIRST, SECOND = batch(backend="flashinfer"), old_block(second_step(backend="flashinfer"))
OLD, HIDDEN = ["previous-tree-not-cleared"], ["prefix-hidden"]


def test_the_step_before_is_of_the_same_rank() -> None:
    other = spoil(FIRST, ("rank", 1))
    assert diagnoses(FIRST, SECOND) == OLD
    assert diagnoses(other, SECOND) == HIDDEN
    assert diagnoses(FIRST, other, SECOND) == OLD


def test_ranks_may_be_mixed() -> None:
    steps = [FIRST, spoil(FIRST, ("rank", 1)), spoil(SECOND, ("rank", 1)), SECOND]
    assert diagnoses(*steps) == OLD * 2


def test_the_step_before_has_the_same_request() -> None:
    """Two records of step 0, one of them of other requests."""
    other = spoil(FIRST, ("requests.0.rid", "x"), ("requests.1.rid", "y"), ("requests.2.rid", "z"))
    assert diagnoses(FIRST, other, SECOND) == OLD
    assert diagnoses(other, SECOND) == HIDDEN


def test_a_gap_or_a_repeat_is_no_step_before() -> None:
    assert diagnoses(spoil(FIRST, ("step", 3)), SECOND) == HIDDEN
    assert diagnoses(FIRST, spoil(SECOND, ("requests.1.rid", "new"))) == HIDDEN


def test_check_step_alone_takes_the_step_before() -> None:
    assert [f.diagnosis for f in check_step(SECOND, FIRST)] == OLD
    assert [f.diagnosis for f in check_step(SECOND)] == HIDDEN


@given(st.lists(clean_steps(plain=True), min_size=1, max_size=3), st.data())
def test_one_step_at_a_time_equals_the_whole_trace(
    steps: list[VerifyStep], data: st.DataObject
) -> None:
    spoiled = [
        spoil(
            step,
            ("step", i),
            ("inputs.positions.0", data.draw(st.integers(0, 20))),
            ("reference.target_predict.0", data.draw(st.integers(0, 5))),
            ("commit.seq_lens.0", data.draw(st.integers(0, 20))),
        )
        for i, step in enumerate(steps)
    ]
    checker = TraceChecker()
    fed = [finding for step in spoiled for finding in checker.feed(step)]
    report = check_trace(spoiled)
    assert tuple(fed) == report.findings
    assert checker.report() == report
    assert report.steps == len(steps)


def test_every_consequence_names_a_finding_of_its_step() -> None:
    step = spoil(
        batch(),
        ("links.retrieve_next_token.1.4", 8),
        ("outcome.accept_index.1", ints(10, 11, 14, -1, -1)),
        ("inputs.mask_indptr", ints(0, 24, 60, 88)),
        ("inputs.qo_indptr", ints(0, 4, 8, 12)),
    )
    found = findings(step)
    checks = [f.check for f in found]
    named = {f.consequence_of for f in found} - {None}
    assert named == {"I1", "I12", "I13"}
    for finding in found:
        if finding.consequence_of is not None:
            assert checks.index(finding.consequence_of) < checks.index(finding.check)


def test_context_names_faults_of_the_request() -> None:
    step = spoil(batch(), ("inputs.positions.12", 9))
    context = StepContext(step, found=check_step(step))
    assert context.has("I10", 1)
    assert not context.has("I10", 0)
    assert not context.has("I8", 1)
