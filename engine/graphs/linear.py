"""Matrix products of a decoder layer with what surrounds them: one launch for few rows on a GPU, else torch's own.

Which of the two is a rule of shape, type and device (:func:`is_few`), never a matter of failure. Covered: 16-bit
weights with the kernel, any with torch. Not covered: packed CPU weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.graphs.rows import gated, normed

try:
    import triton

    from engine.graphs import linear_kernel as kernels
except ImportError:  # Triton has no build for this platform; torch serves
    triton = None

FEW = 128  # rows up to which the weights' way from memory is what a product takes


def is_few(x: Tensor) -> bool:
    """Whether products of ``x`` [rows, width] are done by the kernel: at most 128 rows, 16 bits, on a GPU."""
    return x.is_cuda and triton is not None and x.dtype.itemsize == 2 and len(x) <= FEW


def norm_linear(
    hidden: Tensor, gain: Tensor, eps: float, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """``norm(hidden) @ weight.T + bias``, [rows, out]; hidden [rows, width], gain [width], weight [out, width]."""
    if is_few(hidden):
        return few_rows(hidden, weight, gain=gain, eps=eps, bias=bias)
    return F.linear(normed(hidden, gain, eps), weight, bias)


def norm_gate_up(hidden: Tensor, gain: Tensor, eps: float, weight: Tensor) -> Tensor:
    """``silu(gate) * up`` of ``norm(hidden)``, [rows, inner]; weight [2 * inner, width], gates first."""
    if is_few(hidden):
        return few_rows(hidden, weight, gain=gain, eps=eps, is_gated=True)
    return gated(F.linear(normed(hidden, gain, eps), weight))


def linear_add(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
    """``residual + x @ weight.T + bias``, [rows, out]."""
    if is_few(x):
        return few_rows(x, weight, bias=bias, residual=residual)
    base = residual if bias is None else residual + bias
    return torch.addmm(base, x, weight.T)


def few_rows(
    x: Tensor,
    weight: Tensor,
    *,
    gain: Tensor | None = None,
    eps: float = 0.0,
    bias: Tensor | None = None,
    is_gated: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """The kernel: ``x`` [rows, width] with contiguous columns, ``weight`` contiguous; any number of rows."""
    rows, width = x.shape
    columns = len(weight) // 2 if is_gated else len(weight)
    out = x.new_empty(rows, columns)
    tile = min(64, max(16, triton.next_power_of_2(rows)))
    block = 16
    kernels.few_rows[(triton.cdiv(columns, block), triton.cdiv(rows, tile))](
        x,
        weight,
        gain,
        bias,
        residual,
        out,
        rows,
        columns,
        x.stride(0),
        eps,
        WIDTH=width,
        HAS_NORM=gain is not None,
        HAS_BIAS=bias is not None,
        GATED=is_gated,
        ADDS=residual is not None,
        ROWS=tile,
        COLUMNS=block,
        STEP=64,
        PRECISION="ieee",
        num_warps=4,
        num_stages=5,
    )
    return out
