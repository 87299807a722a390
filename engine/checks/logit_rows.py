"""Rows whose recorded logits say that they were not computed, or went wrong on the way."""

from __future__ import annotations

import numpy as np

from engine.checks.context import StepContext, once_a_step


@once_a_step
def not_finite_rows(context: StepContext) -> list[int]:
    """Flat rows whose logits were recorded as not finite."""
    finite = context.step.outcome.finite_rows
    if finite is None or finite.all():
        return []
    rows: list[int] = np.flatnonzero(~finite).tolist()
    return rows


@once_a_step
def flat_rows(context: StepContext) -> list[int]:
    """Flat rows whose two best logits are exactly zero, and are not in plain decoding: they were never computed."""
    top2, plain = context.step.outcome.top2, context.step.reference.top2
    if top2 is None or top2[:, 0, 1].all():
        return []
    zero = (top2[:, :, 1] == 0.0).all(axis=1)
    if plain is not None:
        common = min(len(zero), len(plain))
        zero[:common] &= ~(plain[:common, :, 1] == 0.0).all(axis=1)
    rows: list[int] = np.flatnonzero(zero).tolist()
    return rows
