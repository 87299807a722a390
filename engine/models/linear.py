"""Projection: a matrix product with weights, and the packed form that a CPU reads fastest.

A float32 CPU model spends its time reading weights. oneDNN multiplies from a blocked copy of the
matrix about twice as fast as torch's own product does for up to some tens of rows, which is what
decoding and tree verification need. Packing is explicit (:meth:`Decoder.pack`), never done behind
the caller's back in a product.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PACKED_ROWS = 8  # the row count that the blocked layout is chosen for; measured good from 1 to 128


class LinearKind(Enum):
    """How a model's products are computed."""

    TORCH = "torch"
    ONEDNN_PACKED = "onednn-packed"


def best_kind(dtype: torch.dtype, device: torch.device) -> LinearKind:
    """ONEDNN_PACKED for float32 on a CPU whose torch has oneDNN, TORCH otherwise."""
    packable = device.type == "cpu" and dtype is torch.float32
    usable = packable and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return LinearKind.ONEDNN_PACKED if usable else LinearKind.TORCH


def frozen(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> nn.Parameter:
    """An uninitialised parameter without gradient."""
    return nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)


class Projection(nn.Module):
    """x [..., in] to x W^T + b [..., out], with W [out, in] either dense or packed."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = weight  # None once packed
        self.bias = bias
        self._packed: Tensor | None = None
        self._product: Any = None  # looked up when packing: not every torch has the operator

    @property
    def kind(self) -> LinearKind:
        """How this product is computed now."""
        return LinearKind.TORCH if self._packed is None else LinearKind.ONEDNN_PACKED

    def pack(self) -> None:
        """Replace the dense weight by the blocked one. Its values stay; views of the dense one go
        stale.
        """
        if self.weight is not None:
            reorder = torch.ops.mkldnn._reorder_linear_weight.default
            self._packed = reorder(self.weight.detach(), PACKED_ROWS)
            self._product = torch.ops.mkldnn._linear_pointwise.default
            self.weight = None

    def dense(self) -> Tensor:
        """W [out, in]: the weight itself, or a copy of it once packed."""
        if self.weight is not None:
            return self.weight
        assert self._packed is not None
        return self._packed.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] to [..., out], of the weight's dtype."""
        if self._packed is None:
            assert self.weight is not None
            return F.linear(x, self.weight, self.bias)
        product: Tensor = self._product(x, self._packed, self.bias, "none", [], "")
        return product

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        if self._packed is not None:
            raise RuntimeError(
                "a packed model can't be moved or cast: load it again for the new place"
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def projection(
    out: int,
    width: int,
    dtype: torch.dtype,
    device: torch.device | str,
    *,
    bias: bool = False,
) -> Projection:
    """An uninitialised product of ``width`` inputs and ``out`` outputs."""
    weight = frozen((out, width), dtype, device)
    return Projection(weight, frozen((out,), dtype, device) if bias else None)
