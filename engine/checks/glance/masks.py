"""The mask and the logits of a step at a glance: I5, I8, I9."""

from __future__ import annotations

from engine.checks.glance.plain_step import PlainStep, is_unless_absent


def packing(plain: PlainStep) -> bool:
    """I5."""
    extents = not plain.bits or is_unless_absent(plain.inputs.byte_indptr, plain.byte_indptr)
    return extents and plain.mask_is_intended


def content(plain: PlainStep) -> bool:
    """I8."""
    return plain.mask_is_intended


def live_rows(plain: PlainStep) -> bool:
    """I9: every node sees itself, all logits are finite, and no row's best is exactly zero."""
    finite, top2 = plain.outcome.finite_rows, plain.outcome.top2
    if finite is not None and 0 in finite.tobytes():
        return False
    if top2 is not None and 0.0 in top2[:, 0, 1].tolist():
        return False
    return plain.inputs.custom_mask is None or plain.mask_is_intended
