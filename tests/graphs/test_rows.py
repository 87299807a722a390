"""Norm, gate and heads: kernel, torch twin and a literal computation agree.

Run: pytest tests/graphs/test_rows.py
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.graphs import rows
from engine.graphs.rows import Heads, Memory
from engine.models.rope import RopeScaling, rope_table
from tests.attention.devices import DEVICES

DTYPES = [torch.float32, torch.bfloat16]
CLOSE = {torch.float32: (1e-5, 1e-6), torch.bfloat16: (1.6e-2, 1e-3)}


def noise(
    *shape: int, seed: int, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(device=device, dtype=dtype)


def close(left: Tensor, right: Tensor) -> None:
    relative, absolute = CLOSE[left.dtype]
    torch.testing.assert_close(left, right, rtol=relative, atol=absolute)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 5, 64, 576])
def test_norm(device: str, dtype: torch.dtype, width: int) -> None:
    hidden = noise(3, width, seed=1, device=device, dtype=dtype)
    weight = noise(width, seed=3, device=device, dtype=dtype)
    close(rows.normed_triton(hidden, weight, 1e-5), rows.normed_torch(hidden, weight, 1e-5))


def test_norm_literally() -> None:
    out = rows.normed_torch(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 0.5]), 0.0)
    root = math.sqrt((9 + 16) / 2)
    torch.testing.assert_close(out, torch.tensor([[3 / root, 2 / root]]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 513])
def test_gate(device: str, dtype: torch.dtype, width: int) -> None:
    both = noise(4, 2 * width, seed=4, device=device, dtype=dtype)
    close(rows.gated_triton(both), rows.gated_torch(both))
    gate, up = both.double().chunk(2, dim=-1)
    torch.testing.assert_close(
        rows.gated_torch(both).double(), gate / (1 + (-gate).exp()) * up, rtol=1e-2, atol=1e-3
    )


def turned(row: Tensor, position: int, dim: int, theta: float) -> list[float]:
    """One head rotated by hand, float64."""
    out = [0.0] * dim
    for i in range(dim // 2):
        angle = position / theta ** (2 * i / dim)
        low, high = float(row[i]), float(row[i + dim // 2])
        out[i] = low * math.cos(angle) - high * math.sin(angle)
        out[i + dim // 2] = high * math.cos(angle) + low * math.sin(angle)
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("heads", [(3, 1), (0, 2), (4, 2)])
def test_heads(device: str, layers: int, normed: bool, heads: tuple[int, int]) -> None:
    if heads[0] and layers > 1:
        pytest.skip("queries come with one layer")
    count, dim, slots = 5, 16, 11
    layout = Heads(*heads, dim, rope_table(100.0, dim, RopeScaling(), 40).to(device), 1e-6)
    fused = noise(count, layers * layout.width, seed=5, device=device)
    positions = torch.tensor([0, 3, 3, 39, 7], device=device)
    q_norm, k_norm = (
        (noise(layers, dim, seed=seed, device=device) if normed else None) for seed in (6, 7)
    )
    places = torch.tensor([4, 1, 10, 7, 2], device=device)
    made = []
    for run in (rows.place_heads_triton, rows.place_heads_torch):
        pool = [torch.full((layers, slots, heads[1], dim), 9.0, device=device) for _ in range(2)]
        mine = fused.clone()
        run(mine, positions, layout, q_norm, k_norm, Memory(*pool, places))
        made.append((mine, *pool))
    for left, right in zip(*made, strict=True):
        close(left, right)
    mine, k_pool, v_pool = (part.cpu() for part in made[0])
    table = mine.view(count, layers, -1, dim)
    keys = table[:, :, heads[0] : heads[0] + heads[1]]
    assert torch.equal(k_pool[:, places.cpu()], keys.transpose(0, 1))
    assert torch.equal(v_pool[:, places.cpu()], table[:, :, heads[0] + heads[1] :].transpose(0, 1))
    untouched = sorted(set(range(slots)) - set(places.tolist()))
    assert (k_pool[:, untouched] == 9.0).all()
    if not normed:
        first = fused.cpu().view(count, layers, -1, dim)[3, 0, 0]
        torch.testing.assert_close(
            table[3, 0, 0].double(),
            torch.tensor(turned(first, 39, dim, 100.0)).double(),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("device", DEVICES)
def test_heads_without_memory_write_nothing(device: str) -> None:
    layout = Heads(2, 1, 16, rope_table(100.0, 16, RopeScaling(), 8).to(device), 1e-6)
    fused = noise(2, layout.width, seed=8, device=device)
    other = fused.clone()
    positions = torch.tensor([1, 2], device=device)
    rows.place_heads_triton(fused, positions, layout, None, None, None)
    rows.place_heads_torch(other, positions, layout, None, None, None)
    close(fused, other)


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 99))
def test_norm_of_any_shape(count: int, width: int, seed: int) -> None:
    hidden, weight = noise(count, width, seed=seed), noise(width, seed=seed + 2)
    wide = hidden.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    out = rows.normed_torch(hidden, weight, 1e-6)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)
