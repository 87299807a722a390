"""The curve against runs of each budget, and the ranks against the marginals themselves."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from engine.decoding.acceptance_curve import (
    Curve,
    DraftedPlace,
    acceptance_curve,
    curve_of,
    drafted_places,
)
from engine.decoding.best_first import Candidates
from engine.decoding.engine import Engine
from engine.decoding.record import Recorder
from engine.decoding.settings import EngineConfig
from engine.drafters.dflash import DFlashDrafter
from engine.models.dflash_tiny import random_dflash
from engine.models.tiny import random_decoder
from engine.trace import TraceHeader, TraceWriter, open_trace

TARGET = random_decoder("llama", seed=4, logit_scale=2.0)
DRAFTER = random_dflash(TARGET, seed=5)
PROMPTS = ([3, 1, 4, 1, 5], [9, 2, 6])


def record(budget: int, topk: int | None = None):
    config = EngineConfig(
        budget=budget, topk=topk, block_size=8, max_context=80, kept_candidates=50
    )
    engine = Engine(TARGET, DFlashDrafter(DRAFTER, TARGET), config)
    recorder = Recorder(TARGET, config, "tiny")
    for i, prompt in enumerate(PROMPTS):
        engine.add(f"r{i}", prompt, 40)
    steps = []
    while engine.running:
        steps.append(recorder.record(len(steps), engine.step()))
    return steps


STEPS = record(4, 2)


@pytest.mark.parametrize("budget", [1, 4, 16])
def test_each_place_accepts_what_a_run_from_there_accepts(budget):
    """Every recorded place is decoded again by an engine of that budget that starts there."""
    lengths = []
    for place in drafted_places(STEPS):
        step = next(s for s in STEPS if s.step == place.step)
        request = next(r for r in step.requests if r.rid == place.rid)
        prompt = PROMPTS[int(place.rid[1:])]
        text = [*prompt]
        for earlier in STEPS:
            for i, other in enumerate(earlier.requests):
                if other.rid == place.rid:
                    if earlier.step == 0:
                        text.append(int(other.tree.tokens[0]))
                    if earlier.step < place.step:
                        text += earlier.outcome.emitted[i].tolist()
        assert len(text) == request.prefix_len + 1
        config = EngineConfig(budget=budget, topk=None, block_size=8, max_context=80)
        engine = Engine(TARGET, DFlashDrafter(DRAFTER, TARGET), config)
        engine.add("again", text[:-1], 40)
        result = engine.step()
        if len(result.emitted[0]) <= len(place.following):
            lengths.append(len(result.emitted[0]))
    (point,) = acceptance_curve(drafted_places(STEPS), budgets=[budget])
    assert point.places == len(lengths) > 10
    assert point.accept_length == pytest.approx(np.mean(lengths))


def test_the_recorded_budget_accepts_what_was_recorded():
    places = [p for p in drafted_places(STEPS) if p.step < STEPS[-1].step - 3]
    (point,) = acceptance_curve(places, budgets=[4], topk=2)
    assert point.accept_length == pytest.approx(np.mean([1 + p.accepted for p in places]))


def test_ranks_are_those_of_the_tree_where_it_accepted():
    for place in drafted_places(STEPS):
        step = next(s for s in STEPS if s.step == place.step)
        i = [r.rid for r in step.requests].index(place.rid)
        path = [n for n in step.outcome.accept_index[i].tolist() if n >= 0]
        width = len(step.outcome.target_predict) // len(step.requests)
        ranks = [int(step.workbench.drafter_ranks[i][n - i * width]) for n in path[1:]]
        assert list(place.target_ranks[: len(ranks)]) == ranks
        assert place.accepted == len(ranks)


def test_more_nodes_never_accept_less():
    curve = acceptance_curve(drafted_places(STEPS))
    values = [point.accept_length for point in curve]
    assert values == sorted(values)
    assert [point.budget for point in curve][-1] == 48  # 50 candidates were recorded


def test_marginals_survive_a_recording(tmp_path: Path):
    path = tmp_path / "a.ddtree.arrow"
    with TraceWriter(path, TraceHeader(created_by="a test")) as writer:
        for step in STEPS:
            writer.write(step)
    again = list(open_trace(path))
    assert again == STEPS
    assert acceptance_curve(drafted_places(again)) == acceptance_curve(drafted_places(STEPS))


def test_without_marginals_there_is_no_curve():
    assert acceptance_curve([]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"draft_width": None},
        {"draft_width": 0},
        {"draft_width": -3},
        {"draft_width": 51},
        {"draft_tokens": None},
        {"draft_log_probs": None},
        {"draft_tokens": np.zeros(0, np.int64), "draft_log_probs": np.zeros(0)},
        {"draft_log_probs": np.zeros(7)},
        {"draft_width": 10**9},
    ],
)
def test_marginals_that_do_not_fit_are_no_marginals(changes):
    broken = [
        dataclasses.replace(step, workbench=dataclasses.replace(step.workbench, **changes))
        for step in STEPS
    ]
    assert drafted_places(broken) == []
    assert curve_of(broken) == Curve(0, (), None, None)


def test_a_walk_that_ends_with_the_recording_counts_for_no_budget():
    candidates = Candidates(np.log([[0.6, 0.4], [0.7, 0.3]]), np.array([[1, 2], [3, 4]]))
    known = DraftedPlace(0, "r", 9, candidates, (1, 3, 5), 2)
    cut = DraftedPlace(1, "r", 9, candidates, (1,), 0)
    (point,) = acceptance_curve([known, cut], budgets=[2])
    assert (point.accept_length, point.places) == (3.0, 1)
    assert acceptance_curve([cut], budgets=[2]) == []
