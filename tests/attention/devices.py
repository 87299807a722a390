"""Where kernels are tested: in Triton's interpreter, and on a GPU where there is one."""

from __future__ import annotations

import os

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="no TRITON_INTERPRET=1")),
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(
            INTERPRETED or not torch.cuda.is_available(), reason="no CUDA device"
        ),
    ),
]
