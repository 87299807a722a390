"""Matrix products of a decoder layer with what surrounds them: one launch for few rows on a GPU, else torch's own.

Which of the two is a rule of shape, type and device (:func:`is_few`), never a matter of failure. Covered: 16-bit
weights with the kernel, any with torch. Not covered: packed CPU weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.graphs.rows import gated

try:
    import triton
except ImportError:  # Triton has no build for this platform; torch serves
    triton = None
else:
    from engine.graphs import linear_kernel as kernels

FEW = 128  # rows up to which the weights' way from memory is what a product takes


def is_few(x: Tensor) -> bool:
    """Whether products of ``x`` [rows, width] are done by the kernel: at most 128 rows, 16 bits, on a GPU."""
    return x.is_cuda and triton is not None and x.dtype.itemsize == 2 and len(x) <= FEW


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``, [rows, out]; x [rows, width], weight [out, width]."""
    return few_rows(x, weight, bias=bias) if is_few(x) else F.linear(x, weight, bias)


def linear_gated(x: Tensor, weight: Tensor) -> Tensor:
    """``silu(gate) * up``, [rows, inner]; weight [2 * inner, width], gates first."""
    return few_rows(x, weight, is_gated=True) if is_few(x) else gated(F.linear(x, weight))


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
    bias: Tensor | None = None,
    is_gated: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """The kernel: ``x`` [rows, width] with contiguous columns, ``weight`` contiguous; any number of rows."""
    rows, width = x.shape
    columns = len(weight) // 2 if is_gated else len(weight)
    out = x.new_empty(rows, columns)
    tile = min(64, max(16, triton.next_power_of_2(rows)))
    block = 32 if is_gated and tile == 64 else 16  # measured on an H200 for widths of 576 and 1536
    kernels.few_rows[(triton.cdiv(columns, block), triton.cdiv(rows, tile))](
        x,
        weight,
        bias,
        residual,
        out,
        rows,
        columns,
        x.stride(0),
        WIDTH=width,
        HAS_BIAS=bias is not None,
        GATED=is_gated,
        ADDS=residual is not None,
        ROWS=tile,
        COLUMNS=block,
        STEP=128 if width >= 1024 else 64,
        PRECISION="ieee",
        num_warps=4,
        num_stages=6 if width >= 1024 else 4,
    )
    return out
