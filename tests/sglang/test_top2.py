"""The two best tokens of a row: against a sort, ties by the lower token; the kernel on the interpreter or a GPU."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sglang.outcome import best_of_parts
from engine.sglang.top2 import BLOCK, top2, top2_torch

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


def sorted_two(row: list[float]) -> list[float]:
    """Tokens by logit, then by number."""
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))
    return [order[0], order[1], row[order[0]], row[order[1]]]


def told(found: torch.Tensor) -> list[list[float]]:
    tokens, logits = best_of_parts(found.cpu().numpy())
    return [[*map(float, own), *map(float, v)] for own, v in zip(tokens, logits, strict=True)]


@pytest.mark.parametrize("device", DEVICES)
@given(
    st.integers(2, 40).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(-3, 3), min_size=width, max_size=width), min_size=1, max_size=4
        )
    )
)
def test_against_a_sort_with_ties(device: str, rows: list[list[int]]) -> None:
    logits = torch.tensor(rows, dtype=torch.bfloat16, device=device)
    assert told(top2(logits)) == [sorted_two([float(x) for x in row]) for row in rows]


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_with_nan_names_it_and_one_of_minus_infinity_is_that(device: str) -> None:
    logits = torch.zeros(3, 5, device=device)
    logits[0, 3], logits[1], logits[2, 2] = torch.nan, -torch.inf, torch.inf
    found = told(top2(logits))
    assert found[0][0] == 3
    assert np.isnan(found[0][2])
    assert found[1][2] == -np.inf
    assert found[2][:3] == [2, 0, np.inf]


def kernel_rows(logits: torch.Tensor, block: int) -> torch.Tensor:
    """The kernel itself: on a GPU, else on the interpreter."""
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1")
    triton = pytest.importorskip("triton")
    from engine.sglang.top2_kernel import top2_rows

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = logits.to(device)
    parts = -(-rows.shape[1] // block)
    found = torch.empty(len(rows), parts, 4, dtype=torch.int32, device=device)
    triton.jit(top2_rows)[(len(rows), parts)](rows, found, rows.stride(0), rows.shape[1], block)
    return found.cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [2, 15, 16, 17, 50, 64])
def test_the_kernel_equals_its_twin_and_a_sort(dtype: torch.dtype, vocab: int) -> None:
    """Some parts have one column, in some all are equal, in some the row's two best lie together."""
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randint(-4, 4, (6, vocab), generator=generator).to(dtype)
    logits[1] = 0.0
    logits[2, :2] = 9.0
    logits[3, 0] = logits[3, -1] = 9.0
    logits[4] = -torch.inf
    found = told(kernel_rows(logits, 16))
    assert found == told(top2_torch(logits)) == [sorted_two(row) for row in logits.tolist()]


def test_the_kernel_on_nan_and_strided_rows() -> None:
    wide = torch.randn(4, 70, generator=torch.Generator().manual_seed(1))
    rows = wide[:, :33]
    assert told(kernel_rows(rows, 16)) == told(top2_torch(rows.contiguous()))
    broken = rows.clone()
    broken[2, 20], broken[2, 31] = torch.nan, torch.nan
    broken[1, 32], broken[0, 3], broken[0, 30] = torch.nan, torch.inf, torch.nan
    found = told(kernel_rows(broken, 16))
    assert [row[0] for row in found[:3]] == [30, 32, 20]
    assert np.isnan([row[2] for row in found[:3]]).all()


def test_no_rows_and_seconds_that_are_no_token() -> None:
    tokens, logits = best_of_parts(np.zeros((0, 3, 4), np.int32))
    assert tokens.shape == logits.shape == (0, 2)
    nan, beyond = np.array([np.nan, -np.inf], np.float32).view(np.int32), 2**31 - 1
    tokens, _ = best_of_parts(np.array([[[4, beyond, *nan]]], np.int32))
    assert tokens.tolist() == [[4, -1]]


@given(st.integers(2, 90), st.integers(1, 90), st.integers(0, 99))
def test_parts_put_together_are_a_sort(vocab: int, block: int, seed: int) -> None:
    drawn = torch.randint(-3, 3, (3, vocab), generator=torch.Generator().manual_seed(seed)).float()
    parts = []
    for begin in range(0, vocab, block):
        own = torch.full((3, max(block, 2)), -torch.inf)
        own[:, : len(drawn[0, begin : begin + block])] = drawn[:, begin : begin + block]
        part = top2_torch(own)
        part[:, :, :2] += begin
        if len(drawn[0, begin : begin + block]) == 1:
            part[:, :, 1] = 2**31 - 1
        parts.append(part)
    assert told(torch.cat(parts, 1)) == [sorted_two(row) for row in drawn.tolist()]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_vocabulary_of_many_blocks() -> None:
    logits = torch.randn(17, 9 * BLOCK + 5, device="cuda").bfloat16()
    assert told(top2(logits)) == told(top2_torch(logits))
