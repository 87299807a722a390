"""Products with their surroundings: the kernel, torch and float64 agree.

Run: pytest tests/graphs/test_linear.py
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.graphs import forward, heads, linear
from engine.graphs.forward import decoder_stack
from engine.graphs.linear import Norm, Unscaled
from engine.graphs.rows import gated_torch, normed_torch, place_heads_torch
from engine.models.tiny import random_decoder
from tests.attention.devices import DEVICES, INTERPRETED
from tests.graphs.test_rows import noise

SHAPES = [(1, 64, 16), (17, 96, 40), (65, 576, 48)]  # rows, width, out
SIZES = (0.0, 1e-20, 1e-3, 1.0, 1e4, 1e15)  # of rows


def exact(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Norm | None = None,
    bias: Tensor | None = None,
    is_gated: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """float64."""
    wide = x.double()
    if norm is not None:
        scale = (wide.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
        wide = wide * scale * norm.gain.double()
    out = wide @ weight.double().T
    if bias is not None:
        out = out + bias.double()
    if is_gated:
        gate, up = out.chunk(2, dim=-1)
        out = gate / (1 + (-gate).exp()) * up
    return out if residual is None else out + residual.double()


def options(out: int, rows: int, device: str, dtype: torch.dtype) -> list[dict[str, object]]:
    bias = noise(out, seed=out, device=device, dtype=dtype)
    residual = noise(rows, out, seed=9, device=device, dtype=dtype)
    return [
        {},
        {"bias": bias},
        {"residual": residual},
        {"is_gated": True},
        {"bias": bias, "residual": residual},
    ]


def unscaled(x: Tensor, norm: Norm, block: int) -> Unscaled:
    """What a product that hands on ``x`` leaves, in plain torch."""
    squares = [part.float().square().sum(-1) for part in x.split(block, dim=-1)]
    rows = (x.float() * norm.gain.float()).to(x.dtype)
    return Unscaled(rows, torch.stack(squares, dim=-1), norm.eps)


def close_rows(found: Tensor, wanted: Tensor) -> None:
    """Errors are small against the largest number of their row, however large or small; below 1e-37 all are nothing."""
    assert found.shape == wanted.shape
    error = (found.double() - wanted).abs().amax(-1)
    assert (error <= 2e-4 * wanted.abs().amax(-1) + 1e-37).all(), error


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_in_float32(device: str, shape: tuple[int, int, int]) -> None:
    rows, width, out = shape
    x = noise(rows, width, seed=1, device=device)
    weight = noise(2 * out, width, seed=2, device=device) / width**0.5
    for chosen in options(out, rows, device, torch.float32):
        used = weight if chosen.get("is_gated") else weight[:out]
        found = linear.few_rows(x, used, **chosen)  # type: ignore[arg-type]
        wanted = exact(x, used, **chosen)  # type: ignore[arg-type]
        torch.testing.assert_close(found.double(), wanted, rtol=2e-4, atol=2e-5)


def sized(sizes: list[float], width: int, seed: int, device: str) -> Tensor:
    """Rows of these sizes."""
    scale = torch.tensor(sizes, device=device)[:, None]
    return noise(len(sizes), width, seed=seed, device=device) * scale


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=15 if INTERPRETED else 40)
@given(
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=33),
    st.sampled_from((1, 5, 63, 64, 65, 200)),
    st.sampled_from((1, 16, 300)),
    st.integers(4, 20),
    st.sampled_from(("plain", "bias", "gated", "residual")),
    st.integers(0, 99),
)
def test_unscaled_rows(
    device: str, sizes: list[float], width: int, block: int, out: int, kind: str, seed: int
) -> None:
    """Rows of zeros, large and tiny ones side by side; widths that are no multiple of a step; up to 200 blocks."""
    x, is_gated = sized(sizes, width, seed, device), kind == "gated"
    weight = noise(out * (1 + is_gated), width, seed=seed + 1, device=device) / width**0.5
    norm = Norm(noise(width, seed=seed + 2, device=device), 1e-5)
    bias = noise(out, seed=seed + 3, device=device) if kind == "bias" else None
    residual = noise(len(x), out, seed=seed + 4, device=device) if kind == "residual" else None
    found = linear.few_rows(
        unscaled(x, norm, block), weight, bias=bias, is_gated=is_gated, residual=residual
    )
    close_rows(found, exact(x, weight, norm=norm, bias=bias, is_gated=is_gated, residual=residual))


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=15 if INTERPRETED else 40)
@given(
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=33),
    st.integers(1, 70),
    st.sampled_from(("plain", "bias", "residual")),
    st.integers(0, 99),
)
def test_rows_handed_on(device: str, sizes: list[float], out: int, kind: str, seed: int) -> None:
    """The result is that of a product alone; what is handed on is worked out of it as it is stored."""
    x, weight = sized(sizes, 24, seed, device), noise(out, 24, seed=seed + 1, device=device)
    norm = Norm(noise(out, seed=seed + 2, device=device), 1e-5)
    bias = noise(out, seed=seed + 3, device=device) if kind == "bias" else None
    residual = noise(len(x), out, seed=seed + 4, device=device) if kind == "residual" else None
    found, handed = linear.few_rows_norm(x, weight, norm=norm, bias=bias, residual=residual)
    torch.testing.assert_close(found, linear.few_rows(x, weight, bias=bias, residual=residual))
    wanted = unscaled(found, norm, 16)
    assert torch.equal(handed.rows, wanted.rows)
    torch.testing.assert_close(handed.squares, wanted.squares)
    assert handed.eps == norm.eps
    following = noise(7, out, seed=seed + 5, device=device) / out**0.5
    close_rows(linear.few_rows(handed, following), exact(found, following, norm=norm))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_handed_on_are_those_stored(device: str) -> None:
    """Rounded to 16 bits before they are squared and multiplied; the interpreter's products know float16 alone."""
    dtype = torch.float16 if device == "cpu" else torch.bfloat16
    x, gain, weight = (
        noise(*size, seed=seed, device=device, dtype=dtype)
        for seed, size in enumerate(((18, 70), (40,), (40, 70)))
    )
    norm, following = Norm(gain, 1e-5), weight[:9, :40].contiguous() / 8
    found, handed = linear.few_rows_norm(x, weight / 8, norm=norm)
    wanted = unscaled(found, norm, 16)
    assert torch.equal(handed.rows, wanted.rows)
    torch.testing.assert_close(handed.squares, wanted.squares)
    result, right = linear.few_rows(handed, following), exact(found, following, norm=norm)
    assert float((result.double() - right).norm() / right.norm()) < 5e-3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("block", [1, 16])
@pytest.mark.parametrize("is_gated", [False, True])
def test_nothing_beside_rows_is_read(device: str, block: int, is_gated: bool) -> None:
    """NaN lies behind rows, columns, sums and gain."""
    rows, width, out = 5, 70, 12
    x, norm = (
        noise(rows, width, seed=1, device=device),
        Norm(noise(width, seed=2, device=device), 1e-6),
    )
    given = unscaled(x, norm, block)
    room, sums, gains = (
        torch.full(size, float("nan"), device=device)
        for size in ((rows + 11, width + 9), (rows + 11, given.squares.shape[1]), (out + 52,))
    )
    room[:rows, :width], sums[:rows], gains[:out] = given.rows, given.squares, 2.0
    weight = noise(2 * out if is_gated else out, width, seed=3, device=device)
    inside = Unscaled(room[:rows, :width], sums[:rows], norm.eps)
    found = linear.few_rows(inside, weight, is_gated=is_gated)
    close_rows(found, exact(x, weight, norm=norm, is_gated=is_gated))
    if not is_gated:
        result, handed = linear.few_rows_norm(inside, weight, norm=Norm(gains[:out], 1e-6))
        torch.testing.assert_close(result, found)
        assert torch.equal(handed.rows, 2 * result)
        assert handed.squares.isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_norm_is_not(device: str) -> None:
    """Neither without its scale, nor without gain or eps, nor about the mean; larger rows give the same."""
    x = noise(3, 64, seed=1, device=device) + 2.0
    weight, norm = noise(16, 64, seed=2, device=device), Norm(noise(64, seed=3, device=device), 0.5)
    found = linear.few_rows(unscaled(x, norm, 16), weight)
    for other in (
        exact(x * norm.gain, weight),
        exact(x, weight, norm=Norm(torch.ones_like(norm.gain), 0.5)),
        exact(x, weight, norm=Norm(norm.gain, 0.0)),
        exact(x - x.mean(-1, keepdim=True), weight, norm=norm),
    ):
        with pytest.raises(AssertionError):
            close_rows(found, other)
    scaled = linear.few_rows(unscaled(8 * x, Norm(norm.gain, 32.0), 16), weight)
    torch.testing.assert_close(scaled, found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1, 15, 17])
def test_gain_of_another_width(device: str, size: int) -> None:
    x, weight = noise(2, 64, seed=1, device=device), noise(16, 64, seed=2, device=device)
    norm = Norm(torch.ones(size, device=device), 1e-5)
    with pytest.raises(ValueError, match=rf"gain: expected \[16\], found \[{size}\]"):
        linear.few_rows_norm(x, weight, norm=norm)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("shape", [(1, 576, 960), (33, 1536, 576), (128, 576, 64), (200, 64, 32)])
def test_bfloat16_on_a_gpu(shape: tuple[int, int, int]) -> None:
    """Whichever way the rule takes, errors are those of rounding the result once."""
    rows, width, out = shape
    x = noise(rows, width, seed=1, device="cuda", dtype=torch.bfloat16)
    weight = noise(2 * out, width, seed=2, device="cuda", dtype=torch.bfloat16) / width**0.5
    bias, residual, gain = (
        noise(*size, seed=3, device="cuda", dtype=torch.bfloat16)
        for size in ((out,), (rows, out), (out,))
    )
    norm = Norm(gain, 1e-5)
    following = noise(48, out, seed=4, device="cuda", dtype=torch.bfloat16) / out**0.5
    result, handed = linear.linear_add_norm(x, weight[:out], bias, residual, norm)
    assert isinstance(handed, Unscaled) == (rows <= linear.FEW)
    for found, wanted in (
        (result, exact(x, weight[:out], bias=bias, residual=residual)),
        (linear.linear(handed, following), exact(result, following, norm=norm)),
        (
            linear.linear_gated(handed, following),
            exact(result, following, norm=norm, is_gated=True),
        ),
        (linear.linear(x, weight[:out], bias), exact(x, weight[:out], bias=bias)),
        (linear.linear_gated(x, weight), exact(x, weight, is_gated=True)),
        (
            linear.linear_add(x, weight[:out], None, residual),
            exact(x, weight[:out], residual=residual),
        ),
    ):
        assert float((found.double() - wanted).norm() / wanted.norm()) < 5e-3


@pytest.mark.parametrize("bias", [False, True])
def test_torch_on_a_cpu(bias: bool) -> None:
    x, weight = noise(3, 8, seed=1), noise(10, 8, seed=2)
    shift, residual = noise(10, seed=4) if bias else None, noise(3, 10, seed=5)
    for found, wanted in (
        (linear.linear(x, weight, shift), exact(x, weight, bias=shift)),
        (linear.linear_gated(x, weight), exact(x, weight, is_gated=True)),
        (
            linear.linear_add(x, weight, shift, residual),
            exact(x, weight, bias=shift, residual=residual),
        ),
    ):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_times_gain_out_of_range_of_float16(dtype: torch.dtype) -> None:
    """A product before its scale is never held in float16."""
    x, gain, weight, following = (
        noise(*size, seed=seed, device="cuda", dtype=dtype)
        for seed, size in enumerate(((9, 64), (576,), (576, 64), (48, 576)))
    )
    norm, following = Norm(gain * 100, 1e-5), following / 576
    residual = torch.zeros(9, 576, device="cuda", dtype=dtype)
    result, handed = linear.linear_add_norm(x * 1e3, weight, None, residual, norm)
    wanted = exact(result, following, norm=norm)
    found = linear.linear(handed, following)
    assert float((found.double() - wanted).norm() / wanted.norm()) < 5e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_norm_behind_torch_on_a_cpu(dtype: torch.dtype) -> None:
    """A product and a norm, as if they were called one after the other."""
    x, weight, gain, bias, residual = (
        noise(*shape, seed=seed, dtype=dtype)
        for seed, shape in enumerate(((3, 8), (10, 8), (10,), (10,), (3, 10)))
    )
    result, rows = linear.linear_add_norm(x, weight, bias, residual, Norm(gain, 1e-5))
    assert isinstance(rows, Tensor)
    assert torch.equal(result, linear.linear_add(x, weight, bias, residual))
    assert torch.equal(rows, normed_torch(result, gain, 1e-5))


@pytest.mark.skipif(not INTERPRETED, reason="no TRITON_INTERPRET=1")
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_layers_by_the_kernel(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack gives the same whichever way its products take; norms of their own are then the first and the last."""
    given = decoder_stack(random_decoder(family, seed=5))
    width = given.final_norm.shape[0]
    layers = [
        replace(layer, input_norm=noise(width, seed=i), mlp_norm=noise(width, seed=i + 50))
        for i, layer in enumerate(given.layers)
    ]
    stack = replace(given, layers=tuple(layers), final_norm=noise(width, seed=99))
    rows, hidden = 5, noise(5, width, seed=6)
    positions = torch.arange(rows)

    def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q + v.repeat_interleave(q.shape[1] // v.shape[1], 1) * (layer + 1)

    stream, wanted_kept = hidden, {}
    for i, layer in enumerate(layers):
        fused = normed_torch(stream, layer.input_norm, stack.eps) @ layer.qkv.T
        place_heads_torch(fused, positions, stack.heads, layer.q_norm, layer.k_norm, None)
        stream = stream + attention(i, *stack._split(fused)).flatten(1) @ layer.out.T
        inner = gated_torch(normed_torch(stream, layer.mlp_norm, stack.eps) @ layer.gate_up.T)
        stream = wanted_kept[i] = stream + inner @ layer.down.T
    wanted = normed_torch(stream, stack.final_norm, stack.eps)
    assert len(layers) > 1
    assert layers[0].qkv_bias is None
    assert layers[0].out_bias is None
    by_torch = stack.run(hidden, positions, attention, None, (0, 1))
    norms = []

    def counted(*given: Any) -> Tensor:
        norms.append(given)
        return normed_torch(*given)

    monkeypatch.setattr(linear, "splits_norms", lambda x: True)
    for module in (linear, heads):
        monkeypatch.setattr(module, "is_few", lambda x: True)
    for module in (linear, forward):
        monkeypatch.setattr(module, "normed", counted)
    by_kernel = stack.run(hidden, positions, attention, None, (0, 1))
    for found, kept in (by_torch, by_kernel):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(kept, wanted_kept, rtol=1e-4, atol=1e-4)
    assert len(norms) == 2


def test_which_products_are_few() -> None:
    assert not linear.is_few(torch.zeros(1, 8, dtype=torch.bfloat16))  # a CPU takes torch's
    if torch.cuda.is_available():
        there = torch.zeros(129, 8, dtype=torch.bfloat16, device="cuda")
        assert [linear.is_few(there[:rows]) for rows in (1, 128, 129)] == [True, True, False]
        assert linear.splits_norms(there[:1])
        assert not linear.splits_norms(there[:1].half())
        assert not linear.is_few(there.float()[:1])
