"""Recorded predictions of one request's rows against plain decoding's: equal, near-ties, and rows that differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from engine.checks.context import StepContext
from engine.checks.reference import margin_is_tiny
from engine.step import Float64


@dataclass(frozen=True)
class RowDifference:
    """One row on which the recorded target and plain decoding choose differently."""

    row: int  # flat row id
    node: int
    recorded: int  # token
    plain: int
    recorded_margin: float | None  # its best logit minus its logit of our token; None: not recorded
    plain_margin: (
        float | None
    )  # our best logit minus our logit of its token; None: no token of ours
    near_tie: bool  # all margins that are known lie within 4 units in the last place


@dataclass(frozen=True)
class RequestRows:
    """One request of one step. ``problem``: why it could not be compared; its rows are none then."""

    step: int
    rank: int
    rid: str
    rows: int = 0
    differences: tuple[RowDifference, ...] = ()
    problem: str | None = None

    @property
    def near_ties(self) -> int:
        """Rows that differ within rounding."""
        return sum(difference.near_tie for difference in self.differences)

    @property
    def differ(self) -> int:
        """Rows that differ by more."""
        return len(self.differences) - self.near_ties

    @property
    def equal(self) -> int:
        """Rows on which both choose the same."""
        return self.rows - len(self.differences)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        counts = {"equal": self.equal, "near_ties": self.near_ties, "differ": self.differ}
        return {
            "step": self.step,
            "rank": self.rank,
            "request": self.rid,
            "rows": self.rows,
            **counts,
            "differences": [asdict(difference) for difference in self.differences],
            "problem": self.problem,
        }


def compare_rows(context: StepContext, request: int, logits: Tensor) -> RequestRows:
    """``logits``: plain decoding's of every node, [num_nodes, V] on any device.

    Raises ``ValueError`` where the step does not say what the target predicted on all of these rows.
    """
    step, rows = context.step, context.oracle.real_rows(request)
    rid, predict = step.requests[request].rid, step.outcome.target_predict
    if predict is None or rows.stop > len(predict):
        raise ValueError(f"{rid}: expected target_predict for {len(rows)} rows, found fewer")
    if len(rows) != len(logits):
        raise ValueError(
            f"{rid}: expected a row for each of {len(logits)} nodes, found {len(rows)}"
        )
    plain = logits.argmax(dim=-1).tolist()
    differences = [
        _difference(context, row, node, plain[node], logits[node])
        for node, row in enumerate(rows)
        if plain[node] != int(predict[row])
    ]
    return RequestRows(step.step, step.rank, rid, len(rows), tuple(differences))


def _difference(
    context: StepContext, row: int, node: int, plain: int, logits: Tensor
) -> RowDifference:
    predict = context.step.outcome.target_predict
    assert predict is not None
    recorded = int(predict[row])
    ours = [float(logits[plain]), float(logits[recorded])] if 0 <= recorded < len(logits) else None
    theirs = _recorded_logits(context.step.outcome.top2, row, recorded, plain)
    dtype = context.step.logits_dtype
    sides = [np.array(side) for side in (ours, theirs) if side is not None]
    near = ours is not None and all(margin_is_tiny(side, dtype) for side in sides)
    return RowDifference(row, node, recorded, plain, _margin(theirs), _margin(ours), near)


def _margin(pair: list[float] | None) -> float | None:
    return None if pair is None else pair[0] - pair[1]


def _recorded_logits(
    top2: Float64 | None, row: int, recorded: int, plain: int
) -> list[float] | None:
    """The recorded logits of both tokens; of our token at most the second best where it is neither of the two."""
    if top2 is None or row >= len(top2) or not np.isfinite(top2[row]).all():
        return None
    by_token = dict(top2[row].tolist())
    if recorded not in by_token:
        return None
    return [by_token[recorded], by_token.get(plain, min(by_token.values()))]
