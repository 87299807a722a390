"""Every injector on recorded steps, on trees of several shapes: its diagnosis as the only cause, or clean where it
changes nothing; and every diagnosis of the contract is reached by an injector.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import pytest

from engine.checks.finding import Verdict
from engine.checks.registry import Report, check_trace
from engine.faults import FAULTS
from engine.faults.recorded import RECORDED_FAULTS, RECORDED_INJECTORS, inject_recorded
from engine.faults.recorded.edit import with_config, with_outcome
from engine.faults.recorded.masks import tree_columns_only
from engine.step import VerifyStep
from engine.trace.errors import FieldProblem
from engine.trace.validate import validate_step
from tests.contract import DIAGNOSES
from tests.faults.expectations import (
    ENGINE,
    EXPECTED,
    HARMLESS,
    NO_FAULT,
    NOT_WRITABLE,
    ONLY_A_CONSEQUENCE,
    REPLAYS_ONLY,
    SHORTER,
)
from tests.faults.recordings import CASES, EAGER, REPLAY, Case, causes, faulty_run, recording

BATCH = Case("bushy", 3, REPLAY)
WITH_PADDING_ROWS = Case("mixed", 3, REPLAY)


@cache
def report(fault: str, case: Case) -> Report:
    return check_trace(inject_recorded(fault, recording(case)))


def _is_refused(fault: str, case: Case) -> bool:
    return fault in REPLAYS_ONLY and case.graph is not REPLAY


def _is_harmless(fault: str, case: Case) -> bool:
    return fault in HARMLESS and HARMLESS[fault](case)


def _params() -> list[object]:
    out = []
    for fault in RECORDED_FAULTS:
        for case in CASES:
            out.append(pytest.param(fault, case, id=f"{fault}-{case}"))
    return out


@pytest.mark.parametrize(("fault", "case"), _params())
def test_exactly_the_expected_cause(fault: str, case: Case) -> None:
    if _is_refused(fault, case):
        message = f"^fault {fault}: .*{re.escape(REPLAYS_ONLY[fault])}$"
        with pytest.raises(ValueError, match=message):
            inject_recorded(fault, recording(case))
        return
    found = report(fault, case)
    if (fault, case.graph) in SHORTER and _is_harmless(fault, case):
        assert causes(found) == {SHORTER[fault, case.graph]}
    elif _is_harmless(fault, case):
        assert found.findings == ()
    elif EXPECTED[fault] in NO_FAULT:
        assert found.faults == ()
        assert {(f.check, f.diagnosis) for f in found.findings} == {EXPECTED[fault]}
    else:
        assert causes(found) == {EXPECTED[fault]}


@pytest.mark.parametrize("fault", ["sibling-leak", "padding-leak"])
def test_what_every_step_repeats_is_not_left_over(fault: str) -> None:
    """Masks of tree columns alone are equal in two steps whose trees have one form, mistakes included."""
    steps = tree_columns_only(faulty_run(fault, Case("mixed", 3, EAGER)))
    assert causes(check_trace(steps)) == {("I8", fault)}


def test_every_injector_is_expected_and_shows_somewhere() -> None:
    assert set(EXPECTED) == set(RECORDED_FAULTS)
    assert not set(RECORDED_FAULTS) & set(FAULTS)
    for fault in RECORDED_FAULTS:
        shows = [c for c in CASES if not (_is_refused(fault, c) or _is_harmless(fault, c))]
        assert shows, fault


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ("rank-tokens", "tokens"),
        ("rank-predict", "predict"),
        ("rank-accepted", "accepted"),
        ("rank-bonus", "bonus"),
        ("rank-length", "length"),
    ],
)
def test_ranks_differ_first_in_the_field_that_was_changed(fault: str, field: str) -> None:
    for case in CASES:
        for finding in report(fault, case).causes:
            assert f"rank 1 differs from rank 0 in {field}" in finding.message


@pytest.mark.parametrize("fault", RECORDED_FAULTS)
def test_faulty_steps_can_be_written_down(fault: str) -> None:
    for case in CASES[-2:]:
        if _is_refused(fault, case):
            continue
        for step in inject_recorded(fault, recording(case)):
            if fault in NOT_WRITABLE:
                with pytest.raises(FieldProblem) as caught:
                    validate_step(step)
                assert caught.value.field == NOT_WRITABLE[fault]
            else:
                validate_step(step)


@pytest.mark.parametrize("fault", RECORDED_FAULTS)
def test_every_fault_is_described_in_one_sentence(fault: str) -> None:
    description = RECORDED_INJECTORS[fault].description
    assert description.endswith(".")
    assert description.count(". ") == 0


def test_steps_carry_the_faults_name_and_the_recording_stays() -> None:
    before = recording(BATCH)
    changed = inject_recorded("heap-keys", before)
    assert {step.workbench.fault for step in changed} == {"heap-keys"}
    assert {step.workbench.fault for step in before} == {None}


def test_unknown_faults_list_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"fault: expected one of unpadded-slots, .*'nonsense'"):
        inject_recorded("nonsense", recording(BATCH))


def test_no_steps_show_nothing() -> None:
    with pytest.raises(ValueError, match="steps: expected at least one, found none"):
        inject_recorded("heap-keys", [])


@pytest.mark.parametrize(
    ("fault", "steps", "message"),
    [
        ("anchor-of-accepted", recording(BATCH)[:1], "one that goes on in a second step"),
        (
            "runner-up-bonus",
            [with_outcome(step, top2=None) for step in recording(BATCH)],
            "outcome.top2: expected a recorded value, found null",
        ),
        (
            "offsets-of-block",
            [with_config(step, block_size=None) for step in recording(BATCH)],
            "config.block_size: expected a recorded value, found null",
        ),
    ],
)
def test_injectors_say_what_they_lack(
    fault: str, steps: Sequence[VerifyStep], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^fault {fault}: .*{message}"):
        inject_recorded(fault, steps)


def test_every_diagnosis_of_the_contract_is_reached() -> None:
    contract = {(check, name) for check, names in DIAGNOSES.items() for name in names.split()}
    as_cause, otherwise, verdicts = set(), set(), set()
    for fault in RECORDED_FAULTS:
        for case in CASES:
            if not _is_refused(fault, case):
                found = report(fault, case)
                as_cause |= causes(found)
                otherwise |= {(f.check, f.diagnosis) for f in found.faults}
                verdicts |= {
                    (f.check, f.diagnosis) for f in found.findings if f.verdict is Verdict.NEAR_TIE
                }
    for fault, pair in ENGINE.items():
        case = WITH_PADDING_ROWS if fault == "padding-leak" else BATCH
        found = causes(check_trace(faulty_run(fault, case)))
        assert pair in found, fault
        as_cause |= found
    assert as_cause == contract - ONLY_A_CONSEQUENCE - NO_FAULT
    assert otherwise >= ONLY_A_CONSEQUENCE
    assert verdicts == NO_FAULT
