"""Clean steps give no finding at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.registry import CHECKS, check_trace
from engine.step import VerifyStep
from tests import factories
from tests.checks.build import (
    EVERY,
    batch,
    clean_steps,
    findings,
    on_ranks,
    skipped,
    spoil,
    two_steps,
)


def test_worked_example() -> None:
    step = factories.example_step()
    assert findings(step) == []
    assert list(skipped(step)) == ["I22"]


@pytest.mark.parametrize("backend", ["triton", "flashinfer", "addressed"])
@pytest.mark.parametrize("encoding", ["bytes", "bits"])
@pytest.mark.parametrize("layout", ["full", "qlen"])
@pytest.mark.parametrize("rows", ["static", "ragged", "padded"])
@pytest.mark.parametrize("window", [None, 2])
def test_batch_of_three(
    backend: str, encoding: str, layout: str, rows: str, window: int | None
) -> None:
    step = batch(
        backend=backend,
        encoding=encoding,
        layout=layout,
        window=window,
        ragged=rows == "ragged",
        padded=2 if rows == "padded" else 0,
    )
    assert findings(step) == []
    assert skipped(step) == {}


@given(clean_steps())
def test_random_steps(step: VerifyStep) -> None:
    assert findings(step) == []


@given(factories.clean_steps())
def test_steps_of_the_engines_builders(step: VerifyStep) -> None:
    assert findings(step) == []


@given(two_steps())
def test_two_steps(steps: tuple[VerifyStep, VerifyStep]) -> None:
    assert findings(*steps) == []


@given(two_steps(), st.integers(2, 3))
def test_several_ranks(steps: tuple[VerifyStep, VerifyStep], world_size: int) -> None:
    both = [rank for step in steps for rank in on_ranks(step, world_size)]
    report = check_trace(both)
    assert report.findings == ()
    assert "ranks" in report.checks


@pytest.mark.parametrize("counts_draft", [False, True])
@pytest.mark.parametrize("page", [None, 1, 4])
@pytest.mark.parametrize("encoding", ["bytes", "bits"])
def test_every_field(encoding: str, page: int | None, counts_draft: bool) -> None:
    step = batch(full=True, encoding=encoding, page=page, counts_draft=counts_draft, padded=1)
    report = check_trace(on_ranks(step, 2))
    assert report.findings == ()
    assert report.skipped == ()
    assert [spec.id for spec in CHECKS if spec.name in report.checks] == list(EVERY)


def test_persistent_buffer_may_be_longer() -> None:
    step = batch()
    longer = [*step.inputs.custom_mask.tolist(), 1, 0, 1]
    assert findings(spoil(step, ("inputs.custom_mask", factories.np.array(longer, "uint8")))) == []


@pytest.mark.parametrize("accepted", [[20, 24, 26, -1], [20, 24, -1, -1]])
@pytest.mark.parametrize("committed", [[0, 4, 6], [0, 4]])
def test_a_path_past_a_stop_may_end_with_it(accepted: list[int], committed: list[int]) -> None:
    """Node 4 of the third request is token 5; with that as a stop both ends are right."""
    ints = factories.ints
    step = spoil(
        batch(),
        ("config.eos_token_ids", ints(5)),
        ("outcome.accept_index.2", ints(*accepted)),
        ("outcome.accept_length.2", sum(row >= 0 for row in accepted)),
        ("commit.kv.0.nodes.2", ints(*committed)),
        ("commit.kv.1.nodes.2", ints(*committed)),
        ("commit.seq_lens.2", 3 + len(committed)),
    )
    # The second request passes token 5 as well (node 4) and goes on to node 7, which it may.
    assert findings(step) == []
