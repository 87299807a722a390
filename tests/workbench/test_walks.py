"""What the drafter offered and how the target walked, by hand. Run: pytest tests/workbench/test_walks.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sample import make_step

from engine.decoding.acceptance_curve import drafted_places
from workbench.drafted import offers, places_of
from workbench.panes.walk_pane import missing_text, summary_text
from workbench.walk_ends import End
from workbench.walks import Walk, chosen_request, chosen_step, requests_of, walks_of

NEVER = np.nan  # how a recording writes the log-probability of what can never be drafted
WALKS = [
    Walk(2, "r0", 3, (0, 5), ("a", "b"), 2, 9, End.BEYOND_TOPK, 4, 16),
    Walk(2, "r1", 3, (None,), ("c",), 1, 9, End.NO_CANDIDATE, 4, 16),
    Walk(3, "r0", 3, (0, 0, 0), ("a", "b", "c"), None, 9),
]


def drafted(emitted: list[int], accept_length: int, log_probs: list[list[float]]):
    """A step of one request that drafted tokens 10 … 12, 20 … 22, 30 … 32 at three depths."""
    step = make_step(6)
    tokens = np.array([[10, 11, 12], [20, 21, 22], [30, 31, 32]])
    return replace(
        step,
        outcome=replace(
            step.outcome,
            emitted=(np.array(emitted, np.int64),),
            accept_length=np.array([accept_length]),
        ),
        workbench=replace(
            step.workbench,
            token_texts={10: " a", 21: "b", 99: ""},
            draft_width=3,
            draft_tokens=tokens.ravel(),
            draft_log_probs=np.array(log_probs, float).ravel(),
        ),
    )


KNOWN = [[-0.1, -1.0, -2.0]] * 3


def test_a_walk_says_the_rank_at_each_depth_and_where_it_stopped() -> None:
    (walk,) = walks_of(drafted([10, 21, 77], 3, KNOWN))
    assert walk == Walk(6, "r0", 3, (0, 1, None), ("␠a", "b", "#77"), 3, 9, End.ELSEWHERE, 4, 16)


def test_a_whole_walk_stops_nowhere() -> None:
    (walk,) = walks_of(drafted([10, 21, 30, 5], 4, KNOWN))
    assert (walk.ranks, walk.stopped, len(walk.chosen)) == ((0, 1, 0), None, 3)


def test_a_text_that_ends_on_the_way_is_no_stop() -> None:
    """Token 21 ended the text, though the walk went on to depth 3."""
    step = drafted([10, 21], 4, KNOWN)
    (walk,) = walks_of(step)
    assert (walk.ranks, walk.stopped) == ((0, 1), None)
    assert places_of([step], 0)[0].accepted == 3


def test_what_can_never_be_drafted_is_no_candidate() -> None:
    """A prompt lookup fills the record with the lowest ids: they have no rank."""
    step = drafted([10, 21], 2, [[-0.1, NEVER, NEVER], [NEVER] * 3, [NEVER] * 3])
    assert drafted_places([step])[0].target_ranks == (0, None)
    (place,) = places_of([step], 0)
    assert place.target_ranks == (0, None)
    assert offers(place) == [1, 0, 0]
    (walk,) = walks_of(step)
    assert (walk.ranks, walk.stopped, walk.candidates) == ((0, None), 2, 1)


def test_a_token_below_zero_has_no_rank() -> None:
    """Only a damaged record emits one; it is not what stands where there is no candidate."""
    step = drafted([10, -1], 2, [[-0.1, NEVER, NEVER], [NEVER] * 3, [NEVER] * 3])
    assert drafted_places([step])[0].target_ranks == (0, None)


def test_depths_that_no_drafter_has_are_left_out() -> None:
    step = drafted([10, 21], 2, [[-0.1, -0.2, -0.3]] * 20_000)
    step = replace(step, workbench=replace(step.workbench, draft_tokens=np.arange(60_000)))
    assert len(drafted_places([step])[0].candidates.tokens) == 512


def test_a_step_without_candidates_has_no_walk() -> None:
    assert walks_of(make_step(0)) == []


def test_an_empty_token_text_shows() -> None:
    (walk,) = walks_of(drafted([99], 1, KNOWN))
    assert walk.chosen == ("∅",)


@pytest.mark.parametrize(
    ("asked", "step"),
    [(None, 3), ("2", 2), ("0", 2), ("99", 3), ("-1", 3), ("x", 3), ("9" * 40, 3), ("²", 3)],
)
def test_the_step_is_the_one_asked_for_or_the_nearest(asked: str | None, step: int) -> None:
    assert chosen_step(WALKS, asked) == step


def test_the_request_is_the_one_asked_for_or_the_first() -> None:
    assert requests_of(WALKS) == ["r0", "r1"]
    assert chosen_request(WALKS, "r1") == "r1"
    assert chosen_request(WALKS, None) == "r0"
    assert chosen_request(WALKS, "r9") == "r0"


def test_the_map_in_two_sentences() -> None:
    assert summary_text(WALKS) == (
        "The target chose the drafter's best token at 4 of 6 depths it was asked about. "
        "2 walks of 3 stopped early: 1 at a token that was no candidate, 1 at a token beyond the top-k of 4."
    )
    assert summary_text(WALKS[2:]) == (
        "The target chose the drafter's best token at 3 of 3 depths it was asked about."
    )


def test_what_is_missing_is_one_sentence() -> None:
    assert missing_text(WALKS, "dflash") is None
    assert missing_text([], "a_b") == (
        "The drafter a\\_b recorded no candidates, so there is nothing to compare the target's tokens with."
    )
    nothing = [replace(walk, candidates=0) for walk in WALKS]
    assert missing_text(nothing, "dflash") == (
        "The drafter dflash offered no candidate in 2 steps: every step wrote the target's own token alone."
    )
