"""Faults of tokens outside the tree: where the drafter goes on from, and what is emitted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from engine.faults.recorded.edit import (
    accepted,
    every,
    ints,
    need,
    rows_of,
    tokens_of,
    with_inputs,
    with_outcome,
    with_requests,
    with_tree,
)
from engine.faults.recorded.injector import RecordedInjector
from engine.faults.recorded.states import with_stop
from engine.step import Request, VerifyStep

PLACEHOLDER = -1


def _anchor_of_accepted(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """The last committed token is drafted from, although the bonus comes after it."""
    shared = {r.rid for r in steps[0].requests} if steps else set()
    if not any(r.rid in shared for step in steps[1:] for r in step.requests):
        raise ValueError("requests: expected one that goes on in a second step, found none")
    return [
        *steps[:1],
        *(_rooted(step, _last_committed(before)) for before, step in pairwise(steps)),
    ]


def _last_committed(step: VerifyStep) -> dict[str, int]:
    """Token of the last accepted node, by request id."""
    ends = [int(tokens_of(step, i)[path[-1]]) for i, path in enumerate(accepted(step))]
    return {request.rid: end for request, end in zip(step.requests, ends, strict=True)}


def _rooted(step: VerifyStep, roots: dict[str, int]) -> VerifyStep:
    ids = need(step.inputs.input_ids, "inputs.input_ids").copy()

    def edit(number: int, request: Request) -> Request:
        tokens = tokens_of(step, number).copy()
        tokens[0] = ids[rows_of(step, number).start] = roots.get(request.rid, int(tokens[0]))
        return with_tree(request, tokens=tokens)

    changed = with_requests(step, edit)
    return with_inputs(changed, input_ids=ids)


def _bonus_placeholder(step: VerifyStep) -> VerifyStep:
    """The emitted row is a buffer of placeholders into which the accepted tokens alone are written."""
    emitted = need(step.outcome.emitted, "outcome.emitted")
    return with_outcome(
        step, emitted=tuple(ints([*tokens[:-1].tolist(), PLACEHOLDER]) for tokens in emitted)
    )


def _shard_offset_twice(step: VerifyStep) -> VerifyStep:
    """Ids from the second half of a vocabulary on two shards get their shard's first id added once more."""
    half = need(step.config.vocab_size, "config.vocab_size") // 2
    emitted = need(step.outcome.emitted, "outcome.emitted")
    return with_outcome(step, emitted=tuple(t + half * (t >= half) for t in emitted))


def _flushed_buffer(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """A request that stops is flushed from a right-aligned buffer, whole; the bonus is not recorded."""
    return [_flushed(step, whole) for step, whole in zip(with_stop(steps), steps, strict=True)]


def _flushed(step: VerifyStep, whole: VerifyStep) -> VerifyStep:
    width = need(step.config.block_size, "config.block_size") + 1
    rows = []
    cut, full = (need(s.outcome.emitted, "outcome.emitted") for s in (step, whole))
    for shown, tokens in zip(cut, full, strict=True):
        blank = [PLACEHOLDER] * (width - len(tokens))
        rows.append(ints([*blank, *tokens.tolist()]) if len(shown) < len(tokens) else shown)
    return with_outcome(step, emitted=tuple(rows), bonus_tokens=None)


INJECTORS = (
    RecordedInjector(
        "anchor-of-accepted",
        "The drafter goes on from the last accepted token instead of the bonus after it.",
        _anchor_of_accepted,
    ),
    RecordedInjector(
        "bonus-placeholder",
        "A placeholder is emitted where the bonus token should have been written.",
        every(_bonus_placeholder),
    ),
    RecordedInjector(
        "shard-offset-twice",
        "Token ids of the second vocabulary shard get the shard's offset twice.",
        every(_shard_offset_twice),
    ),
    RecordedInjector(
        "flushed-buffer",
        "A request that stops emits its whole right-aligned buffer, placeholders and overshoot included.",
        _flushed_buffer,
    ),
)
