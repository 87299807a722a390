"""What a tree of another budget would have accepted, from the drafter's marginals and the text that followed.

Nodes of a best-first tree come in the order of their weight, and a smaller budget's tree is the beginning of a larger
one's. So one walk over the largest tree answers for every budget: a node is in the tree of budget B if its number is
at most B. Computed at the places where the recorded steps began; steps of another budget would begin elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.decoding.best_first import BuiltTree, Candidates, grow
from engine.step import VerifyStep

MAX_DEPTHS = 512  # of a draft; what a record claims beyond is left out
NOBODY = -1  # token where there is no candidate; no token has this id
BUDGETS = (1, 2, 4, 7, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, eq=False)
class DraftedPlace:
    """What the drafter believed at one step of one request, and what the target then chose."""

    step: int
    rid: str
    root: int
    candidates: Candidates  # [L, draft_width]; a token that can never be drafted is NOBODY
    following: tuple[int, ...]  # tokens after the root, as far as the recording goes
    accepted: int  # drafted tokens that the recorded step accepted

    @property
    def target_ranks(self) -> tuple[int | None, ...]:
        """Rank of the target's token at each depth that is known, 0 the best, None beyond the recorded candidates."""
        ranks: list[int | None] = []
        for row, token in zip(self.candidates.tokens, self.following, strict=False):
            places = np.flatnonzero((row == token) & (row != NOBODY))
            ranks.append(int(places[0]) if len(places) else None)
        return tuple(ranks)


@dataclass(frozen=True)
class CurvePoint:
    """Mean over the places of a recording."""

    budget: int
    accept_length: float  # tokens a step, the bonus included
    places: int


def drafted_places(steps: Iterable[VerifyStep], *, rank: int = 0) -> list[DraftedPlace]:
    """Every step and request of one rank whose marginals were recorded, in order of time."""
    mine = [step for step in steps if step.rank == rank]
    texts: dict[str, list[int]] = {}
    places = []
    for step in reversed(mine):
        for i, request in enumerate(step.requests):
            candidates, emitted = _candidates(step, i), _emitted(step, i)
            if candidates is None or emitted is None or request.tree.tokens is None:
                continue
            text = [*emitted, *texts.get(request.rid, ())]
            texts[request.rid] = text
            root = int(request.tree.tokens[0])
            accepted = len(emitted) - 1
            known = tuple(text[: len(candidates.tokens) + 1])
            places.append(DraftedPlace(step.step, request.rid, root, candidates, known, accepted))
    return places[::-1]


def acceptance_curve(
    places: Sequence[DraftedPlace], *, budgets: Sequence[int] = BUDGETS, topk: int | None = None
) -> list[CurvePoint]:
    """Mean accepted length by budget. Budgets beyond the recorded candidates are left out.

    A place whose walk would go on past the end of the recording counts for no budget.
    """
    width = min((place.candidates.tokens.shape[1] for place in places), default=0)
    budgets = [budget for budget in budgets if topk is not None or budget <= width]
    if not places or not budgets:
        return []
    walks = []
    for place in places:
        built = grow(place.candidates, place.root, max(budgets), topk)
        nodes = walked_nodes(built, place.following)
        if len(nodes) < len(place.following):
            walks.append(nodes)
    return [
        CurvePoint(
            budget, float(np.mean([accepted_length(nodes, budget) for nodes in walks])), len(walks)
        )
        for budget in budgets
        if walks
    ]


@dataclass(frozen=True)
class Curve:
    """Everything about one recording."""

    places: int  # steps and requests whose marginals were recorded
    points: tuple[CurvePoint, ...]  # no cap on ranks
    chain: CurvePoint | None  # as long as the block
    budget: int | None  # of the recording


def curve_of(steps: Sequence[VerifyStep]) -> Curve:
    """The curve of one rank's steps."""
    rank = steps[0].rank if steps else 0
    places = drafted_places(steps, rank=rank)
    if not places:
        return Curve(0, (), None, None)
    length = len(places[0].candidates.tokens)
    chain = next(iter(acceptance_curve(places, budgets=[length], topk=1)), None)
    return Curve(len(places), tuple(acceptance_curve(places)), chain, steps[0].config.budget)


def walked_nodes(built: BuiltTree, following: Sequence[int]) -> list[int]:
    """Nodes below the root along the tokens that followed it, as far as the tree goes."""
    tree, path = built.tree, [0]
    for token in following:
        below = tree.children[path[-1]]
        child = next((node for node in below if int(tree.tokens[node]) == token), None)
        if child is None:
            break
        path.append(child)
    return path[1:]


def accepted_length(nodes: Sequence[int], budget: int) -> int:
    """Tokens that a step of that budget would have emitted, the bonus included."""
    return 1 + sum(node <= budget for node in nodes)


def _candidates(step: VerifyStep, request: int) -> Candidates | None:
    """None where they were not recorded, or where the arrays do not fit each other and the batch."""
    extras = step.workbench
    width, tokens, log_probs = extras.draft_width, extras.draft_tokens, extras.draft_log_probs
    if width is None or tokens is None or log_probs is None or width < 1:
        return None
    if not len(tokens) or len(tokens) != len(log_probs) or len(tokens) % (step.raw_bs * width):
        return None
    shape = (step.raw_bs, -1, width)
    mine, ids = (part.reshape(shape)[request, :MAX_DEPTHS] for part in (log_probs, tokens))
    known = np.isfinite(mine)
    return Candidates(np.where(known, mine, -np.inf), np.where(known, ids, NOBODY))


def _emitted(step: VerifyStep, request: int) -> list[int] | None:
    emitted = step.outcome.emitted
    return None if emitted is None or not len(emitted[request]) else emitted[request].tolist()
