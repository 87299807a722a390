"""How the target walked along what the drafter believed, step by step: small enough to keep for a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.step import VerifyStep
from workbench.drafted import offers, places_of
from workbench.tokens import visible
from workbench.walk_ends import End, end_of


@dataclass(frozen=True)
class Walk:
    """One step of one request. Depth 1 is the first drafted token."""

    step: int
    rid: str
    depths: int  # that the drafter spoke about
    # Of the target's token, 0 best, None: no candidate; up to the depth last asked.
    ranks: tuple[int | None, ...]
    chosen: tuple[str, ...]  # the target's token at each of these depths
    stopped: int | None  # depth that the walk ended at; None: it went to the end, or the text ended
    candidates: int = 1  # over all depths
    end: End | None = None  # why it stopped; None: it did not, or that is not known
    topk: int | None = None  # None: no cap
    budget: int | None = None


def walks_of(step: VerifyStep) -> list[Walk]:
    """The walks of a step's requests; those whose candidates were not recorded are left out."""
    texts = step.workbench.token_texts or {}
    records = {request.rid: request.tree for request in step.requests}
    walks = []
    for place in places_of([step], step.rank):
        ranks = place.target_ranks
        walks.append(
            Walk(
                place.step,
                place.rid,
                len(place.candidates.tokens),
                ranks,
                tuple(
                    visible(texts[token]) or "∅" if token in texts else f"#{token}"
                    for token in place.following[: len(ranks)]
                ),
                place.accepted + 1 if place.accepted < len(ranks) else None,
                sum(offers(place)),
                end_of(place, records[place.rid], step.config),
                step.config.topk,
                step.config.budget,
            )
        )
    return walks


def chosen_request(walks: Sequence[Walk], asked: str | None) -> str:
    """The request that is asked for, else the first."""
    rids = requests_of(walks)
    return asked if asked in rids else rids[0]


def chosen_step(walks: Sequence[Walk], asked: str | None) -> int:
    """The step that is asked for or the nearest one; the last where none is asked for."""
    steps = [walk.step for walk in walks]
    if asked is None or not (asked.isascii() and asked.isdecimal() and len(asked) < 16):
        return steps[-1]
    return min(steps, key=lambda step: (abs(step - int(asked)), step))


def requests_of(walks: Sequence[Walk]) -> list[str]:
    """Ids of the requests, in order of time."""
    return list(dict.fromkeys(walk.rid for walk in walks))
