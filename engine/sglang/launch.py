"""A Triton kernel launched through the driver's C interface, which takes a few microseconds of the calling thread.

Triton's own call looks at every argument each time and takes some fifty. Here it compiles a kernel once for each kind
of arguments; later calls hand the compiled one its arguments, and the interpreter's lock is kept meanwhile: another
thread that got hold of it would keep the caller waiting for longer than the launch lasts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

SCRATCH = 2  # pointers that newer versions of Triton add to every kernel's arguments; null where a kernel needs none


@dataclass(frozen=True, eq=False)
class _Compiled:
    function: int  # CUfunction
    threads: int
    shared: int  # bytes
    values: Any  # int64 of each argument, and what the driver gets: the address of each
    places: Any
    keeps: Any  # alive while its function is


class Launch:
    """``kernel``: makes the jitted kernel, at the first call. One thread at a time may call it."""

    def __init__(self, kernel: Callable[[], Any]) -> None:
        self._kernel = kernel
        self._known: dict[tuple[Any, ...], _Compiled | None] = {}  # None: Triton's own call is used

    def __call__(
        self, grid: tuple[int, ...], arguments: tuple[Any, ...], num_warps: int, **constants: int
    ) -> None:
        """On the current stream. ``arguments``: tensors, contiguous as the kernel expects, and integers in order."""
        addresses = [x if type(x) is int else x.data_ptr() for x in arguments]
        kinds = (_kind(x, at) for x, at in zip(arguments, addresses, strict=True))
        key = (*kinds, num_warps, *constants.values())
        if key not in self._known:
            made = self._kernel()[grid](*arguments, num_warps=num_warps, **constants)
            ones = any(type(x) is int and x == 1 for x in arguments)
            self._known[key] = None if ones else _compiled(made, len(arguments))
            return
        known = self._known[key]
        if known is None:
            self._kernel()[grid](*arguments, num_warps=num_warps, **constants)
        else:
            known.values[: len(addresses)] = addresses
            _launch(known, (*grid, 1, 1)[:3])


def _kind(argument: Any, address: int) -> tuple[Any, ...]:
    """What Triton compiles another kernel for. It leaves out a 1 altogether, so those kernels are left to it."""
    if type(argument) is int:
        return (argument == 1, argument % 16 == 0, -(2**31) <= argument < 2**31)
    return (argument.dtype, address % 16 == 0)


def _compiled(made: Any, count: int) -> _Compiled | None:
    """None on the interpreter, for a kernel that needs memory of its own, and without NVIDIA's driver."""
    metadata = getattr(made, "metadata", None)
    scratch = ("global_scratch_size", "profile_scratch_size")
    if metadata is None or any(getattr(metadata, name, 0) for name in scratch):
        return None
    try:
        driver()
    except OSError:
        return None
    total = count + SCRATCH
    values = (ctypes.c_int64 * total)()
    first = ctypes.addressof(values)
    places = (ctypes.c_void_p * total)(*(first + 8 * index for index in range(total)))
    return _Compiled(made.function, 32 * metadata.num_warps, metadata.shared, values, places, made)


def _launch(known: _Compiled, grid: tuple[int, ...]) -> None:
    stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
    block = (known.threads, 1, 1, known.shared)
    status = driver()(known.function, *grid, *block, stream, known.places, None)
    if status:
        raise RuntimeError(f"cuLaunchKernel: expected status 0, found {status}")


@cache
def driver() -> Any:
    """``cuLaunchKernel``. Raises ``OSError`` where there is no driver."""
    launch = ctypes.PyDLL("libcuda.so.1").cuLaunchKernel
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    launch.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]
    return launch
