"""What the drafter offered at each step and how the target walked, as the pages read it from a recording.

The engine's :func:`~engine.decoding.acceptance_curve.drafted_places`, with one thing put plainly: a walk went as far as
was accepted even where the text ended on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.decoding.acceptance_curve import NOBODY, DraftedPlace, drafted_places
from engine.step import VerifyStep


def places_of(steps: Sequence[VerifyStep], rank: int) -> list[DraftedPlace]:
    """Every step and request whose candidates were recorded, in order of time and batch."""
    walked = _walked(steps)
    order = [(step.step, request.rid) for step in steps for request in step.requests]
    found = {(place.step, place.rid): place for place in drafted_places(steps, rank=rank)}
    return [
        replace(
            place,
            accepted=max(place.accepted, walked.get((place.step, place.rid), 0)),
        )
        for place in (found[key] for key in order if key in found)
    ]


def offers(place: DraftedPlace) -> list[int]:
    """Number of candidates of each depth."""
    return [int(count) for count in (place.candidates.tokens != NOBODY).sum(axis=1)]


def _walked(steps: Sequence[VerifyStep]) -> dict[tuple[int, str], int]:
    """Accepted drafted tokens by step and request, where acceptance was recorded."""
    return {
        (step.step, request.rid): int(length) - 1
        for step in steps
        if step.outcome.accept_length is not None
        for request, length in zip(step.requests, step.outcome.accept_length, strict=False)
    }
