"""Greedy choices are argmaxes, the first of equal ones.

Run: pytest tests/graphs/test_choices.py
"""

from __future__ import annotations

import math

import pytest
import torch

from engine.graphs.choices import choices_triton
from tests.attention.devices import DEVICES


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [1, 61, 4096, 9001])
def test_argmax(device: str, dtype: torch.dtype, vocab: int) -> None:
    drawn = torch.randn(5, vocab, generator=torch.Generator().manual_seed(vocab)).to(dtype)
    wanted = [row.index(max(row)) for row in drawn.tolist()]
    assert choices_triton(drawn.to(device)).tolist() == wanted


@pytest.mark.parametrize("device", DEVICES)
def test_ties_zeros_and_what_is_not_finite(device: str) -> None:
    rows = torch.full((6, 5000), -1.0)
    rows[0, [4500, 17, 4096]] = 2.0
    rows[1, [3, 9]] = torch.tensor([-0.0, 0.0])
    rows[2] = -math.inf
    rows[3, 4999] = math.inf
    rows[4, [100, 4200]] = math.nan
    rows[5] = -3.5
    assert choices_triton(rows.to(device)).tolist() == [17, 3, 0, 4999, 100, 0]
