"""Matrix products of a decoder layer with what surrounds them: one launch for few rows on a GPU, else torch's own.

Which of the two is a rule of shape, type and device (:func:`is_few`, :func:`splits_norms`), never a matter of failure.
Covered: 16-bit weights with the kernel, any with torch; a norm between two products without a launch of its own, for
bfloat16. Not covered: packed CPU weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention.chain import depth_on, launch_options
from engine.graphs.rows import gated, normed

try:
    import triton
except ImportError:  # Triton has no build for this platform; torch serves
    triton = None
else:
    from engine.graphs import linear_kernel as kernels

FEW = 128  # rows up to which the weights' way from memory is what a product takes
BLOCKS = 64  # sums of squares of a row that a program holds at once


@dataclass(frozen=True, eq=False)
class Norm:
    """A root mean square norm of rows; ``gain`` [width]."""

    gain: Tensor
    eps: float


@dataclass(frozen=True, eq=False)
class Unscaled:
    """Normed rows before their scale, one number a row, which the product that takes them works out."""

    rows: Tensor  # [rows, width], times the gain
    squares: Tensor  # float32 [rows, blocks], contiguous: of rows without gain, summed over blocks of columns
    eps: float


def is_few(x: Tensor) -> bool:
    """Whether products of ``x`` [rows, width] are done by the kernel: at most 128 rows, 16 bits, on a GPU."""
    return x.is_cuda and triton is not None and x.dtype.itemsize == 2 and len(x) <= FEW


def splits_norms(x: Tensor) -> bool:
    """Whether a norm behind a product of ``x`` is left to that product and the next one.

    For few rows of bfloat16: float16 doesn't hold every row times every gain.
    """
    return is_few(x) and x.dtype == torch.bfloat16


def linear(x: Tensor | Unscaled, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``, [rows, out]; x [rows, width], weight [out, width]."""
    if isinstance(x, Unscaled) or is_few(x):
        return few_rows(x, weight, bias=bias)
    return F.linear(x, weight, bias)


def linear_gated(x: Tensor | Unscaled, weight: Tensor) -> Tensor:
    """``silu(gate) * up``, [rows, inner]; weight [2 * inner, width], gates first."""
    if isinstance(x, Unscaled) or is_few(x):
        return few_rows(x, weight, is_gated=True)
    return gated(F.linear(x, weight))


def linear_add(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
    """``residual + x @ weight.T + bias``, [rows, out]."""
    if is_few(x):
        return few_rows(x, weight, bias=bias, residual=residual)
    base = residual if bias is None else residual + bias
    return torch.addmm(base, x, weight.T)


def linear_add_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor, norm: Norm
) -> tuple[Tensor, Tensor | Unscaled]:
    """:func:`linear_add` and its normed rows, as :func:`linear` and :func:`linear_gated` take them."""
    if splits_norms(x):
        return few_rows_norm(x, weight, bias=bias, residual=residual, norm=norm)
    out = linear_add(x, weight, bias, residual)
    return out, normed(out, norm.gain, norm.eps)


def few_rows(
    x: Tensor | Unscaled,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    is_gated: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """The kernel: ``x`` [rows, width] with contiguous columns, ``weight`` contiguous; any number of rows."""
    return _launch(x, weight, bias, is_gated, residual, None)[0]


def few_rows_norm(
    x: Tensor | Unscaled,
    weight: Tensor,
    *,
    norm: Norm,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
) -> tuple[Tensor, Unscaled]:
    """:func:`few_rows` and its normed rows; their type has to hold a row times its gain.

    Raises ``ValueError`` for a gain of another width.
    """
    out, gained, squares = _launch(x, weight, bias, False, residual, norm.gain)
    assert gained is not None
    assert squares is not None
    return out, Unscaled(gained, squares, norm.eps)


def squares_of(x: Tensor | Unscaled) -> tuple[Tensor, Tensor | None, float]:
    """Rows as they lie, and of the norm whose scale they lack, if one: sums of squares [rows, blocks] and eps."""
    return (x.rows, x.squares, x.eps) if isinstance(x, Unscaled) else (x, None, 0.0)


def tile_rows(rows: int) -> int:
    """Rows of one program."""
    return min(64, max(16, int(triton.next_power_of_2(rows))))


def blocks_at_once(squares: Tensor | None) -> int:
    """Sums of squares of a row that a program holds at once, a power of two."""
    return 1 if squares is None else min(BLOCKS, int(triton.next_power_of_2(squares.shape[1])))


def lines_of(width: int) -> int:
    """Lines of 128 bytes of a row of 16-bit weights, as a power of two."""
    return int(triton.next_power_of_2(triton.cdiv(width, 64)))


def _launch(
    x: Tensor | Unscaled,
    weight: Tensor,
    bias: Tensor | None,
    is_gated: bool,
    residual: Tensor | None,
    gain: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The result; with ``gain`` the result times it, and sums of squares of blocks of the result's columns."""
    table, before, eps = squares_of(x)
    rows, width = table.shape
    columns = len(weight) // 2 if is_gated else len(weight)
    if gain is not None and gain.shape != (columns,):
        raise ValueError(f"gain: expected [{columns}], found {list(gain.shape)}")
    out = table.new_empty(rows, columns)
    tile = tile_rows(rows)
    block = 32 if is_gated and tile == 64 else 16  # measured on an H200 for widths of 576 and 1536
    blocks = triton.cdiv(columns, block)
    gained = squares = None
    if gain is not None:
        gained = torch.empty_like(out)
        squares = out.new_empty(rows, blocks, dtype=torch.float32)
    depth = depth_on(table.device)
    kernels.few_rows[(blocks, triton.cdiv(rows, tile))](
        table,
        weight,
        bias,
        residual,
        before,
        gain,
        out,
        gained,
        squares,
        rows,
        columns,
        table.stride(0),
        WIDTH=width,
        HAS_BIAS=bias is not None,
        GATED=is_gated,
        ADDS=residual is not None,
        BEFORE=0 if before is None else before.shape[1],
        BLOCKS=blocks_at_once(before),
        EPS=eps,
        HANDS_ON=gain is not None,
        ROWS=tile,
        COLUMNS=block,
        STEP=128 if width >= 1024 else 64,
        PRECISION="ieee",
        LINES=lines_of(width),
        CHAINED=depth,
        num_warps=4,
        num_stages=6 if width >= 1024 else 4,
        **launch_options(depth),
    )
    return out, gained, squares
