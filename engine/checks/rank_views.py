"""What one rank says about one request of a step: all that a comparison of ranks needs, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.checks.blast_radius import reached_nodes
from engine.checks.context import StepContext
from engine.checks.drafter_context import bonus_before
from engine.checks.paths import implied_nodes
from engine.step import UNKNOWN_TOKEN, Float64, Int64, VerifyStep

Values = tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class View:
    """One rank's record of one request."""

    fields: tuple[tuple[str, Values], ...]  # in the order of the comparison; None: not recorded
    first_row: int
    top2: Float64 | None  # [nodes, 2, 2]
    logits_dtype: str | None
    plain: Values  # plain decoding's choice of each node; UNKNOWN_TOKEN for none
    checks: frozenset[str]  # that found a fault in this request
    reached: tuple[tuple[str, frozenset[int]], ...]  # nodes that each fault reaches
    damage: str | None  # the check whose earlier fault left the cache wrong
    implied: Values  # nodes that the rank's own predictions accept
    roots: tuple[int, ...]  # tokens that the step before ended with

    def field(self, name: str) -> Values:
        """Values of a field."""
        return dict(self.fields)[name]

    def cause_of(self, name: str, wrong: Sequence[int], right: View) -> str | None:
        """The rank's own earlier fault whose repair, or whose reach, accounts for the differing entries."""
        predict = self.field("predict")
        if name == "tokens":
            anchor = list(wrong) == [0] and (right.field("tokens") or (None,))[0] in self.roots
            return "I18" if anchor and "I18" in self.checks else None
        if name == "predict":
            nodes = {node for _, reach in self.reached for node in reach}
            hit = [check for check, reach in self.reached if reach & set(wrong)]
            return hit[0] if hit and set(wrong) <= nodes else self.damage
        path = self.implied
        if path is None or predict is None or path[-1] >= len(predict):
            return None
        repaired = {"accepted": path, "bonus": (predict[path[-1]],), "length": (len(path),)}
        if repaired[name] != right.field(name):
            return None
        return next((check for check in ("I13", "I14") if check in self.checks), None)

    def explains_reference(self, right: View) -> bool:
        """Whether the predictions of the reference rank would be plain decoding's wherever this rank's are not."""
        mine, theirs, plain = self.field("predict"), right.field("predict"), self.plain
        if mine is None or theirs is None or plain is None or len(mine) != len(theirs):
            return False
        trios = zip(mine, theirs, plain, strict=False)
        return all(want in (UNKNOWN_TOKEN, have, other) for have, other, want in trios)


def views_of(context: StepContext) -> dict[str, View]:
    """``{request id: view}`` of one step, after its findings."""
    return {context.rid(request): _view(context, request) for request in context.readable}


def _view(context: StepContext, request: int) -> View:
    step, rows, rid = context.step, context.oracle.real_rows(request), context.rid(request)
    outcome, one = step.outcome, range(request, request + 1)
    found = [f for f in context.found if f.check != "I22" and f.request in (None, rid)]
    damage = context.damaged.get(rid)
    path = implied_nodes(context, request)
    fields = (
        ("tokens", _slice(step.requests[request].tree.tokens, range(len(rows)))),
        ("predict", _slice(outcome.target_predict, rows)),
        ("accepted", _accepted(step, request, rows.start)),
        ("bonus", _slice(outcome.bonus_tokens, one)),
        ("length", _slice(outcome.accept_length, one)),
    )
    return View(
        fields=fields,
        first_row=rows.start,
        top2=None if outcome.top2 is None else outcome.top2[rows.start : rows.stop].copy(),
        logits_dtype=step.logits_dtype,
        plain=_slice(step.reference.target_predict, rows),
        checks=frozenset(f.check for f in found if f.verdict == "fault"),
        reached=reached_nodes(context, request, found),
        damage=None if damage is None else damage.check,
        implied=None if path is None else tuple(path),
        roots=tuple(bonus_before(context, request)),
    )


def _accepted(step: VerifyStep, request: int, start: int) -> Values:
    accepted = step.outcome.accept_index
    if accepted is None or request >= len(accepted):
        return None
    return tuple(int(row) - start for row in accepted[request] if row != -1)


def _slice(array: Int64 | None, rows: range) -> Values:
    if array is None or rows.start >= len(array):
        return None
    return tuple(int(n) for n in np.asarray(array)[rows.start : rows.stop])
