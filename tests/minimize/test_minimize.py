"""A shrunken recording keeps its diagnosis, gains no other, and cannot be shrunk further by one node, row or token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.registry import check_trace
from engine.decoding.settings import Graph
from engine.minimize import minimize
from engine.minimize.relayout import relayout
from engine.minimize.selection import everything, smaller
from engine.step import VerifyStep
from engine.trace import dumps, loads
from tests.factories import clean_steps
from tests.faults.test_injectors import run


@given(clean_steps())
def test_keeping_everything_changes_no_array(step: VerifyStep) -> None:
    again = relayout(step, everything(step))
    for group in ("requests", "inputs", "links", "commit", "reference"):
        mine, theirs = getattr(again, group), getattr(step, group)
        assert dumps(_only(again, group, mine)) == dumps(_only(again, group, theirs))


def _only(step: VerifyStep, group: str, value: object) -> VerifyStep:
    from dataclasses import replace

    return replace(step, **{group: value})


@given(clean_steps(), st.data())
def test_every_smaller_clean_step_is_clean(step: VerifyStep, data: st.DataObject) -> None:
    chosen = everything(step)
    for _ in range(4):
        options = list(smaller(step, chosen))
        if not options:
            break
        chosen = data.draw(st.sampled_from(options))
    assert chosen.size <= everything(step).size
    made = relayout(step, chosen)
    assert check_trace([made]).findings == ()
    assert loads(dumps(made)) == made


@pytest.mark.parametrize(
    ("fault", "shape", "nodes", "requests"),
    [
        ("verify-width", "mixed", 2, 1),
        ("padding-leak", "chain", 2, 1),
        ("sibling-leak", "mixed", 5, 1),
        ("causal-mask", "bushy", 4, 1),
        ("hidden-ancestor", "chain", 4, 1),
        ("lost-sibling", "mixed", 4, 1),
        ("crop-commit", "mixed", 6, 1),
        ("first-requests-tree", "mixed", 17, 2),
    ],
)
def test_faults_of_real_runs_become_small(
    fault: str, shape: str, nodes: int, requests: int
) -> None:
    _, steps = run(fault, shape, Graph.REPLAY, 3)
    before = check_trace(steps).causes[0]
    found = minimize(steps)
    last = found.steps[-1]
    assert (found.cause.check, found.cause.diagnosis) == (before.check, before.diagnosis)
    assert last.captured_bs == requests
    assert max(len(request.tree.parents) for request in last.requests) <= nodes
    assert max(request.prefix_len for request in last.requests) == 1
    after = check_trace(found.steps).causes
    assert {(c.check, c.diagnosis) for c in after} == {(before.check, before.diagnosis)}


def test_a_stale_mask_keeps_the_step_before() -> None:
    _, steps = run("stale-mask", "mixed", Graph.REPLAY, 3)
    found = minimize(steps)
    assert len(found.steps) == 2
    assert found.cause.diagnosis == "previous-tree-not-cleared"


def test_a_chosen_diagnosis_is_kept() -> None:
    _, steps = run("shifted-logits", "mixed", Graph.EAGER, 1)
    known = {c.diagnosis for c in check_trace(steps).causes}
    for diagnosis in known:
        assert minimize(steps, diagnosis=diagnosis).cause.diagnosis == diagnosis


def test_clean_steps_cannot_be_minimized() -> None:
    _, steps = run(None, "mixed", Graph.EAGER, 1)
    with pytest.raises(ValueError, match="expected steps with a fault, found none"):
        minimize(steps)


def test_an_unknown_diagnosis_lists_what_there_is() -> None:
    _, steps = run("verify-width", "mixed", Graph.EAGER, 1)
    with pytest.raises(ValueError, match=r"\(width-mismatch\), found bit-order"):
        minimize(steps, diagnosis="bit-order")
