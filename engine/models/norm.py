"""Root mean square norm over the last axis (Zhang and Sennrich, arXiv 1910.07467)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., width] and weight [width] of one dtype to x / sqrt(mean(x^2) + eps) * weight, like x.

    torch's own norm is a dozen small operations on a CPU, each as long as the arithmetic of one
    row; a norm and in-place steps on its one number a row take half the time. Other devices and
    dtypes use torch's.
    """
    if not x.is_cpu or x.dtype is not torch.float32:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    scale: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale.square_().mul_(1.0 / x.shape[-1]).add_(eps).rsqrt_()
    return x * scale * weight
