"""Faults in which one rank decides for itself: each field that ranks must agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.faults.recorded.conclusions import concluded
from engine.faults.recorded.edit import (
    accepted,
    need,
    rows_of,
    spare_leaf,
    tokens_of,
    with_outcome,
)
from engine.faults.recorded.injector import Apply, RecordedInjector
from engine.faults.recorded.leaves import with_leaf_tokens
from engine.faults.recorded.logits import flipped
from engine.faults.recorded.states import on_ranks, without_predictions
from engine.step import VerifyStep

WORLD_SIZE = 2
Edit = Callable[[VerifyStep], VerifyStep]


def _rank_apart(edit: Edit, *, at: slice = slice(None)) -> Apply:
    """The second rank's record changed, in the steps that ``at`` picks."""

    def apply(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
        chosen = set(range(len(steps))[at])
        ranks = on_ranks(steps, WORLD_SIZE)
        return [
            edit(step) if step.rank == 1 and place // WORLD_SIZE in chosen else step
            for place, step in enumerate(ranks)
        ]

    return apply


LAST = slice(-1, None)  # where the recorded steps could not go on from what the rank did


def _other_draft(step: VerifyStep) -> VerifyStep:
    """One leaf a request holds the next free candidate."""
    vocab_size = need(step.config.vocab_size, "config.vocab_size")

    def next_free(token: int, taken: set[int]) -> int:
        others = ((token + n) % vocab_size for n in range(1, vocab_size))
        return next((other for other in others if other not in taken), token)

    return with_leaf_tokens(step, next_free)


def _other_prediction(step: VerifyStep) -> VerifyStep:
    """One leaf a request predicts its runner-up."""
    for request in range(step.raw_bs):
        leaf = spare_leaf(step, request)
        if leaf is not None:
            step = flipped(step, rows_of(step, request).start + leaf)
    return step


def _shorter_path(step: VerifyStep) -> VerifyStep:
    """The last accepted node is not taken; its token is the bonus."""
    paths, bonuses = accepted(step), need(step.outcome.bonus_tokens, "outcome.bonus_tokens")
    kept = [path[:-1] if len(path) > 1 else path for path in paths]
    bonus = [
        int(tokens_of(step, i)[path[-1]]) if len(path) > 1 else int(bonuses[i])
        for i, path in enumerate(paths)
    ]
    return concluded(step, kept, bonus)


def _shorter_paths(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    return _rank_apart(_shorter_path, at=LAST)(without_predictions(steps))


def _other_bonuses(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """The runner-up of the last accepted row, in steps that do not record what rows predict."""
    silent = on_ranks(without_predictions(steps), WORLD_SIZE)
    top2 = need(steps[-1].outcome.top2, "outcome.top2")
    paths = accepted(steps[-1])
    rows = [rows_of(steps[-1], i).start + path[-1] for i, path in enumerate(paths)]
    return [*silent[:-1], concluded(silent[-1], paths, [int(top2[row, 1, 0]) for row in rows])]


def _lengths_ahead(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """Steps that record how many nodes were accepted, but not which."""
    lengths_alone = [with_outcome(step, accept_index=None) for step in without_predictions(steps)]
    return _rank_apart(_counted_bonus, at=LAST)(lengths_alone)


def _counted_bonus(step: VerifyStep) -> VerifyStep:
    lengths = need(step.outcome.accept_length, "outcome.accept_length")
    return replace(step, outcome=replace(step.outcome, accept_length=lengths + 1))


INJECTORS = (
    RecordedInjector(
        "rank-tokens",
        "One rank drafts another token, because every rank takes its own top-k.",
        _rank_apart(_other_draft),
    ),
    RecordedInjector(
        "rank-predict",
        "One rank's target chooses another token, because every rank takes its own argmax.",
        _rank_apart(_other_prediction),
    ),
    RecordedInjector(
        "rank-accepted",
        "One rank accepts one node less than the others in the last step.",
        _shorter_paths,
    ),
    RecordedInjector(
        "rank-bonus",
        "One rank draws its own bonus token in the last step.",
        _other_bonuses,
    ),
    RecordedInjector(
        "rank-length",
        "One rank counts the bonus token among the accepted ones in the last step.",
        _lengths_ahead,
    ),
)
