"""Launches without Triton's own call: what is compiled anew, what reaches the driver, and that results are the same."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.sglang import launch
from engine.sglang.launch import Launch


class Jitted:
    """A kernel of Triton's, as far as it is asked: the calls that it got itself."""

    def __init__(self, **metadata: Any) -> None:
        self.calls: list[Any] = []
        self.made = SimpleNamespace(
            function=77, metadata=SimpleNamespace(num_warps=4, shared=96, **metadata)
        )

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def call(*arguments: Any, num_warps: int, **constants: int) -> Any:
            self.calls.append((grid, len(arguments), num_warps, constants))
            return self.made

        return call


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the driver is given: the first arguments as they are, then the kernel's own values."""
    found: list[Any] = []

    def driver(function: int, *given: Any) -> int:
        *sizes, stream, places, extra = given
        assert extra is None
        values = [ctypes.cast(place, ctypes.POINTER(ctypes.c_int64))[0] for place in places]
        found.append((function, sizes, stream, values))
        return found[-1][3].count(-1)  # a status other than 0 where an argument is -1

    monkeypatch.setattr(launch, "driver", lambda: driver)
    monkeypatch.setattr(launch.torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(
        launch.torch._C, "_cuda_getCurrentRawStream", lambda device: 900 + device, raising=False
    )
    return found


def aligned(cells: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    tensor = torch.zeros(cells + 16, dtype=dtype)
    assert tensor.data_ptr() % 16 == 0
    return tensor


def test_the_first_call_is_tritons_and_later_ones_are_the_drivers(launched: list[Any]) -> None:
    kernel = Jitted()
    run, rows = Launch(lambda: kernel), aligned(8)
    run((3,), (rows, 32), 4, BLOCK=16)
    assert kernel.calls == [((3,), 2, 4, {"BLOCK": 16})]
    assert not launched
    other = aligned(20)
    run((5, 2), (other, 48), 4, BLOCK=16)
    assert len(kernel.calls) == 1
    assert launched == [(77, [5, 2, 1, 128, 1, 1, 96], 900, [other.data_ptr(), 48, 0, 0])]


@pytest.mark.parametrize(
    ("arguments", "warps", "block"),
    [
        ((aligned(8)[1:], 32), 4, 16),
        ((aligned(8, torch.float16), 32), 4, 16),
        ((aligned(8), 33), 4, 16),
        ((aligned(8), 2**40), 4, 16),
        ((aligned(8), 32), 8, 16),
        ((aligned(8), 32), 4, 32),
    ],
)
def test_another_kind_of_arguments_is_compiled_by_triton(
    launched: list[Any], arguments: tuple[Any, ...], warps: int, block: int
) -> None:
    kernel = Jitted()
    run = Launch(lambda: kernel)
    run((1,), (aligned(8), 32), 4, BLOCK=16)
    run((1,), arguments, warps, BLOCK=block)
    assert len(kernel.calls) == 2
    run((1,), arguments, warps, BLOCK=block)
    assert len(kernel.calls) == 2
    assert len(launched) == 1


def test_what_the_driver_cannot_be_given_stays_with_triton(launched: list[Any]) -> None:
    for kernel, given in (
        (Jitted(), (aligned(8), 1)),  # Triton compiles a 1 into the kernel
        (Jitted(global_scratch_size=128), (aligned(8), 2)),
    ):
        run = Launch(lambda kernel=kernel: kernel)  # type: ignore[misc]
        for _ in range(3):
            run((1,), given, 4)
        assert len(kernel.calls) == 3
    assert not launched


def test_without_the_driver_triton_launches(
    launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(launch, "driver", none)
    kernel = Jitted()
    run = Launch(lambda: kernel)
    for _ in range(3):
        run((1,), (aligned(8), 32), 4)
    assert len(kernel.calls) == 3


def test_a_refusal_of_the_driver_is_an_error(launched: list[Any]) -> None:
    kernel = Jitted()
    run = Launch(lambda: kernel)
    run((1,), (aligned(8), -1), 4)
    with pytest.raises(RuntimeError, match="cuLaunchKernel: expected status 0, found 1"):
        run((1,), (aligned(8), -1), 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("vocab", [64, 1000, 49152, 49153])
def test_later_calls_find_what_the_first_one_does(vocab: int) -> None:
    from engine.sglang.outcome import best_of_parts
    from engine.sglang.top2 import top2, top2_torch

    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        for rows in (1, 7, 128):
            logits = torch.randn(rows, vocab, generator=generator).bfloat16().cuda()
            found, wanted = (best_of_parts(way(logits).cpu().numpy()) for way in (top2, top2_torch))
            assert all((a == b).all() for a, b in zip(found, wanted, strict=True))
