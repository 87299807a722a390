"""Heads in one launch: what a product and the placing behind it make, in the rows and in the KV pool.

Run: pytest tests/graphs/test_heads.py
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.graphs import heads as module
from engine.graphs import linear
from engine.graphs.heads import few_rows_heads, joins, linear_heads
from engine.graphs.linear import Norm
from engine.graphs.rows import Heads, Memory, place_heads_torch
from engine.models.rope import RopeScaling, rope_table
from tests.attention.devices import DEVICES, INTERPRETED
from tests.graphs.test_linear import exact, noise, unscaled

POSITIONS, SLOTS = 40, 150


def heads_of(counts: tuple[int, int], dim: int, device: str) -> Heads:
    return Heads(*counts, dim, rope_table(100.0, dim, RopeScaling(), POSITIONS).to(device), 1e-6)


def empty_pools(heads: Heads, rows: int, device: str, dtype: torch.dtype) -> Memory:
    shape = (1, SLOTS, heads.num_kv_heads, heads.head_dim)
    drawn = torch.randperm(SLOTS, generator=torch.Generator().manual_seed(rows))
    k, v = (torch.full(shape, 9.0, device=device, dtype=dtype) for _ in range(2))
    return Memory(k, v, drawn[:rows].to(device))


def places(rows: int, device: str) -> Tensor:
    return (torch.arange(rows) * 7 % POSITIONS).to(device)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=15 if INTERPRETED else 40)
@given(
    st.sampled_from((1, 2, 16, 17, 65)),
    st.sampled_from((5, 64, 70, 200)),
    st.sampled_from(((3, 1), (4, 2), (0, 2), (9, 3))),
    st.sampled_from((16, 32, 64)),
    st.sampled_from(("plain", "unscaled")),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_kernel_in_float32(
    device: str,
    rows: int,
    width: int,
    counts: tuple[int, int],
    dim: int,
    kind: str,
    has_bias: bool,
    stores: bool,
    seed: int,
) -> None:
    """Widths that are no multiple of a step, rows that are none of a tile; keys and values alone."""
    heads = heads_of(counts, dim, device)
    x = noise(rows, width, seed=seed, device=device)
    weight = noise(heads.width, width, seed=seed + 1, device=device) / width**0.5
    bias = noise(heads.width, seed=seed + 2, device=device) if has_bias else None
    norm = Norm(noise(width, seed=seed + 3, device=device), 1e-5) if kind == "unscaled" else None
    found_in, wanted_in = (
        empty_pools(heads, rows, device, torch.float32) if stores else None for _ in range(2)
    )
    given = x if norm is None else unscaled(x, norm, 16)
    found = few_rows_heads(given, weight, bias, places(rows, device), heads, found_in)
    wanted = exact(x, weight, norm=norm, bias=bias).float()
    place_heads_torch(wanted, places(rows, device), heads, None, None, wanted_in)
    torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-5)
    if found_in is not None and wanted_in is not None:
        torch.testing.assert_close(found_in.k, wanted_in.k, rtol=2e-4, atol=2e-5)
        torch.testing.assert_close(found_in.v, wanted_in.v, rtol=2e-4, atol=2e-5)
        parts = found.view(rows, -1, dim).split((*counts, counts[1]), dim=1)
        for pool, part in zip((found_in.k, found_in.v), parts[1:], strict=True):
            assert torch.equal(pool[0, found_in.slots], part)
        untouched = sorted(set(range(SLOTS)) - set(found_in.slots.tolist()))
        assert (found_in.k[:, untouched] == 9.0).all()
        assert (found_in.v[:, untouched] == 9.0).all()


@pytest.mark.parametrize("device", DEVICES)
def test_products_are_rounded_before_they_turn(device: str) -> None:
    """In 16 bits, bit for bit what two launches make; the interpreter's products know float16 alone."""
    dtype = torch.float16 if device == "cpu" else torch.bfloat16
    heads, rows = heads_of((3, 1), 32, device), 18
    x, weight = (
        noise(*size, seed=seed, device=device, dtype=dtype)
        for seed, size in enumerate(((rows, 70), (heads.width, 70)))
    )
    weight = weight / 8
    found_in, wanted_in = (empty_pools(heads, rows, device, dtype) for _ in range(2))
    found = few_rows_heads(x, weight, None, places(rows, device), heads, found_in)
    wanted = linear.few_rows(x, weight)
    place_heads_torch(wanted, places(rows, device), heads, None, None, wanted_in)
    same = (found == wanted).float().mean()
    assert same > 0.99  # the order in which a turn is rounded is free
    torch.testing.assert_close(found, wanted, rtol=4e-3, atol=1e-4)
    torch.testing.assert_close(found_in.k, wanted_in.k, rtol=4e-3, atol=1e-4)
    assert torch.equal(found_in.v, wanted_in.v)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_beside_rows_is_read(device: str) -> None:
    """NaN lies behind rows, columns and slots of positions."""
    heads, rows, width = heads_of((2, 1), 16, device), 5, 70
    room = torch.full((rows + 11, width + 9), float("nan"), device=device)
    room[:rows, :width] = noise(rows, width, seed=1, device=device)
    weights = torch.full((heads.width + 16, width), float("nan"), device=device)
    weights[: heads.width] = noise(heads.width, width, seed=2, device=device)
    table = torch.full((POSITIONS + 3, 16), float("nan"), device=device)
    table[:POSITIONS] = heads.rope
    inside = Heads(2, 1, 16, table[:POSITIONS], 1e-6)
    memory = empty_pools(heads, rows, device, torch.float32)
    found = few_rows_heads(
        room[:rows, :width], weights[: heads.width], None, places(rows, device), inside, memory
    )
    assert found.isfinite().all()
    assert memory.k.isfinite().all()
    assert memory.v.isfinite().all()


@pytest.mark.parametrize("norms", [False, True])
def test_which_way_is_taken(norms: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows without norms of heads: one launch. Norms of heads, small heads, and a CPU: two."""
    heads, rows = heads_of((2, 1), 16, "cpu"), 3
    norm = torch.ones(1, 16) if norms else None
    x, weight = noise(rows, 24, seed=1), noise(heads.width, 24, seed=2)
    assert not joins(x, heads, norm)
    monkeypatch.setattr(module, "is_few", lambda x: True)
    assert joins(x, heads, norm) is not norms
    assert not joins(x, heads_of((2, 1), 8, "cpu"), norm)
    monkeypatch.setattr(module, "JOINS", False)
    assert not joins(x, heads, norm)
    found = linear_heads(x, weight, None, places(rows, "cpu"), heads, norm, norm, None)
    wanted = exact(x, weight).float()
    place_heads_torch(wanted, places(rows, "cpu"), heads, norm, norm, None)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
