"""The same X-rays with compiled kernels. Run where there is a GPU: pytest tests/xray/test_on_device.py."""

from __future__ import annotations

import pytest
import torch

from engine.layout import MaskKind
from engine.xray.kernels import Kernel
from engine.xray.report import examine
from tests.sglang_wheels import sglang_folder
from tests.xray.steps import step_of, story

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
DEVICE = torch.device("cuda", 0)
KERNELS = [Kernel.ENGINE, Kernel.SGLANG]


def xray(step, kernel: Kernel):
    path = str(sglang_folder()) if kernel is Kernel.SGLANG else None
    return examine(step, kernel, device=DEVICE, sglang_path=path)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("width", "fault"), [(None, "clean"), (8, "metadata")])
def test_the_story(kernel: Kernel, width: int | None, fault: str) -> None:
    found = xray(story(width), kernel)
    (request,) = found.report["requests"]
    assert request["fault"] == fault
    assert request["pairs"][2]["agree"]
    assert request["unwritten"] == ([] if width is None else list(range(8, 17)))
    assert found.cells[MaskKind.MEASURED, 0].shape == (17, 22)


@pytest.mark.parametrize("kernel", KERNELS)
def test_long_prefixes_of_several_requests(kernel: Kernel) -> None:
    step = step_of([[-1, 0, 0, 1, 1]] * 3, [2000, 1500, 7], budget=4)
    assert xray(step, kernel).agrees


def test_the_unified_kernel_with_a_window_shorter_than_the_prefix() -> None:
    step = step_of([[-1, 0, 1, 2, 3, 4]], [10], budget=5, window=4, deterministic=True)
    (request,) = xray(step, Kernel.SGLANG).report["requests"]
    assert request["fault"] == "kernel"
    assert request["empty"] == [3, 5]
    assert xray(step, Kernel.ENGINE).agrees
