"""What clean steps may record besides: a recurrent state, several ranks, a stop token, or less than everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.decoding.stages import CORRECT
from engine.faults.recorded.edit import accepted, ints, need, with_commit, with_config, with_outcome
from engine.step import Reference, VerifyStep


def with_recurrent_state(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """A hybrid model's steps: each keeps the recurrent state of its last accepted node."""
    return [
        with_commit(step, recurrent_index=ints([path[-1] for path in accepted(step)]))
        for step in steps
    ]


def on_ranks(steps: Sequence[VerifyStep], world_size: int) -> list[VerifyStep]:
    """Every step as ``world_size`` ranks record it, rank after rank within a step.

    Raises ``ValueError`` for fewer than two ranks, and for steps of several ranks.
    """
    if world_size < 2:
        raise ValueError(f"world_size: expected at least 2, found {world_size}")
    for step in steps:
        if step.world_size != 1:
            raise ValueError(f"world_size: expected steps of one rank, found {step.world_size}")
    return [
        replace(step, rank=rank, world_size=world_size)
        for step in steps
        for rank in range(world_size)
    ]


def with_stop(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """The same steps where the first token that was emitted before another one of its step ends a text.

    What was emitted ends there; the accepted and committed paths may pass a stop. The steps after it stay: they are
    records of their own. Raises ``ValueError`` where no step emitted two tokens.
    """
    emitted = [tokens for step in steps for tokens in need(step.outcome.emitted, "outcome.emitted")]
    stop = next((int(tokens[0]) for tokens in emitted if len(tokens) > 1), None)
    if stop is None:
        raise ValueError("outcome.emitted: expected a step that emits two tokens, found none")
    return [_stopped(step, stop) for step in steps]


def _stopped(step: VerifyStep, stop: int) -> VerifyStep:
    cut = tuple(
        ints(CORRECT.emit(tokens.tolist(), (stop,)))
        for tokens in need(step.outcome.emitted, "outcome.emitted")
    )
    return with_outcome(with_config(step, eos_token_ids=ints([stop])), emitted=cut)


def without_predictions(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """Steps of an engine that records what it accepted, but not what each row predicts."""
    return [
        replace(
            with_outcome(step, target_predict=None, top2=None),
            reference=Reference(),
        )
        for step in steps
    ]
