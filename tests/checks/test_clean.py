"""Clean steps give no finding at all."""

from __future__ import annotations

import pytest
from hypothesis import given

from engine.step import VerifyStep
from tests import factories
from tests.checks.build import batch, clean_steps, findings, skipped, spoil


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


@given(clean_steps(), clean_steps(number=1))
def test_two_steps(before: VerifyStep, after: VerifyStep) -> None:
    assert findings(before, after) == []


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
