"""Synthetic recordings are what a clean server would have written: nothing wrong, every field, each step goes on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from engine.checks.registry import check_trace
from engine.checks.synthetic import Shape, best_first, synthetic_steps, write_synthetic
from engine.step import VerifyStep
from engine.trace import open_trace
from engine.trace.validate import validate_step
from tests.checks.build import EVERY

SMALL = Shape(steps=60, prefix_len=40)


@pytest.mark.parametrize("layout", ["full", "qlen"])
def test_nothing_is_wrong_and_every_check_runs(layout: str) -> None:
    report = check_trace(synthetic_steps(Shape(steps=60, prefix_len=40, layout=layout)))
    assert report.findings == ()
    assert [finding.check for finding in report.skipped] == ["I19"]
    assert len(report.checks) == len(EVERY) - 1


def test_requests_go_on_end_and_make_room() -> None:
    steps, went_on, began = list(synthetic_steps(SMALL)), 0, 0
    for before, after in pairwise(steps):
        mine = {request.rid: i for i, request in enumerate(before.requests)}
        for request in after.requests:
            if request.rid in mine:
                goes_on(before, mine[request.rid], after, request.rid)
                went_on += 1
            else:
                assert request.prefix_len == SMALL.first_len
                began += 1
    assert went_on > 100
    assert began > 10
    assert max(len(path) for step in steps for path in step.outcome.emitted) > 4


def goes_on(before: VerifyStep, number: int, after: VerifyStep, rid: str) -> None:
    old = before.requests[number]
    new = next(request for request in after.requests if request.rid == rid)
    accepted = before.outcome.accept_index[number]
    kept = before.inputs.out_cache_loc[accepted[accepted >= 0]]
    assert new.prefix_slots.tolist() == [*old.prefix_slots, *kept]
    assert new.tree.tokens[0] == before.outcome.bonus_tokens[number]
    assert new.prefix_len == before.commit.seq_lens[number]


def test_a_slot_has_one_holder() -> None:
    for step in synthetic_steps(SMALL):
        held = np.concatenate(
            [*(request.prefix_slots for request in step.requests), step.inputs.out_cache_loc]
        )
        assert len(np.unique(held)) == len(held)
        assert 0 < held.min() <= held.max() < SMALL.pool_size


def test_the_steps_follow_from_the_shape() -> None:
    short, other = Shape(steps=3, prefix_len=20), Shape(steps=3, prefix_len=20, seed=1)
    assert list(synthetic_steps(short)) == list(synthetic_steps(short))
    assert list(synthetic_steps(short)) != list(synthetic_steps(other))
    for step in synthetic_steps(Shape(steps=3, batch=1, budget=1, prefix_len=1)):
        validate_step(step)


def test_written_as_they_are(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    path = tmp_path / "a.ddtree.arrow"
    shape = Shape(steps=3, prefix_len=20)
    write_synthetic(path, shape, progress=lambda label, share: told.append((label, share)))
    assert list(open_trace(path)) == list(synthetic_steps(shape))
    assert told == [("writing 3 steps", n / 3) for n in (1, 2, 3)]


def test_the_most_probable_prefixes_come_first() -> None:
    log_probs, tokens = [[-0.5, -1.0], [-0.1, -3.0]], [[7, 8], [5, 6]]
    tree = best_first(log_probs, tokens, 9, 5)
    assert tree.parents.tolist() == [-1, 0, 1, 0, 3, 1]
    assert tree.tokens.tolist() == [9, 7, 5, 8, 5, 6]
    assert tree.log_weights == pytest.approx([0.0, -0.5, -0.6, -1.0, -1.1, -3.5])
    assert len(best_first(log_probs, tokens, 9, 100).parents) == 7
