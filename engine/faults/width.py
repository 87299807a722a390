"""Faults of the verify width."""

from __future__ import annotations

from dataclasses import replace

from engine.decoding.stages import Stages


def verify_width(stages: Stages) -> Stages:
    """``num_draft_tokens`` stays the drafter's block size while the step verifies budget + 1 rows."""
    return replace(stages, verify_width=lambda budget, block_size: block_size)
