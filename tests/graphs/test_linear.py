"""Products with their surroundings: the kernel, torch and float64 agree.

Run: pytest tests/graphs/test_linear.py
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.graphs import linear
from tests.attention.devices import DEVICES
from tests.graphs.test_rows import noise

SHAPES = [(1, 64, 16), (17, 96, 40), (65, 576, 48)]  # rows, width, out


def exact(
    x: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    is_gated: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """float64."""
    wide = x.double()
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_in_float32(device: str, shape: tuple[int, int, int]) -> None:
    rows, width, out = shape
    x = noise(rows, width, seed=1, device=device)
    weight = noise(2 * out, width, seed=2, device=device) / width**0.5
    for given in options(out, rows, device, torch.float32):
        used = weight if given.get("is_gated") else weight[:out]
        found = linear.few_rows(x, used, **given)  # type: ignore[arg-type]
        wanted = exact(x, used, **given)  # type: ignore[arg-type]
        torch.testing.assert_close(found.double(), wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("shape", [(1, 576, 960), (33, 1536, 576), (128, 576, 64), (200, 64, 32)])
def test_bfloat16_on_a_gpu(shape: tuple[int, int, int]) -> None:
    """Whichever way the rule takes, errors are those of rounding the result once."""
    rows, width, out = shape
    x = noise(rows, width, seed=1, device="cuda", dtype=torch.bfloat16)
    weight = noise(2 * out, width, seed=2, device="cuda", dtype=torch.bfloat16) / width**0.5
    bias, residual = (
        noise(*size, seed=3, device="cuda", dtype=torch.bfloat16) for size in ((out,), (rows, out))
    )
    for found, wanted in (
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


def test_which_products_are_few() -> None:
    assert not linear.is_few(torch.zeros(1, 8, dtype=torch.bfloat16))  # a CPU takes torch's
    if torch.cuda.is_available():
        there = torch.zeros(129, 8, dtype=torch.bfloat16, device="cuda")
        assert [linear.is_few(there[:rows]) for rows in (1, 128, 129)] == [True, True, False]
        assert not linear.is_few(there.float()[:1])
