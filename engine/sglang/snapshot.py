"""Many arrays of a device in one launch: a kernel reads them where they lie and writes to pinned memory of the host.

A copy of its own for each array costs the server's thread some ten microseconds apiece, and slices cost as much again.
Here an array is an address and a length; nothing is sliced, put together or allocated on the device.

Where the kernel cannot run, torch puts the arrays together instead, which takes the server more time; the health file
says so (``gathering``).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.sglang.launch import Launch
from engine.sglang.packed import Entry, Packed, up

WORDS = 7  # of an entry; see ``snapshot_kernel``
ENTRIES = 32  # at most in one launch
HEADER = (4 + 8 * WORDS) * ENTRIES  # bytes before the arrays
NEVER = (2**31 - 1,)  # no program has this number
CHUNK = 4096  # bytes of one program
SPELLED = {dtype: str(dtype).removeprefix("torch.") for dtype in (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64,
)}  # fmt: skip


class Noted(NamedTuple):
    """An array: the first cells of a contiguous tensor, or the first columns of some rows of a table."""

    source: torch.Tensor
    shape: tuple[int, ...]
    rows: torch.Tensor | None  # int64 [shape[0]], of a table [*, columns]
    length: int  # bytes


class Gathering:
    """How a process gathers: by the kernel until it fails, from then on by torch."""

    def __init__(self) -> None:
        self.problem: str | None = None  # why not by the kernel

    def __call__(self, noted: dict[str, Noted]) -> Packed:
        """Starts the copy; it has arrived once the current stream has come this far. ``noted``: on one CUDA device."""
        if self.problem is None:
            try:
                return by_kernel(noted)
            except Exception as error:
                self.problem = f"{type(error).__name__}: {error}"[:500]
        return by_torch(noted)


def by_kernel(noted: dict[str, Noted]) -> Packed:
    """One launch."""
    if len(noted) > ENTRIES:
        raise ValueError(f"expected at most {ENTRIES} arrays, found {len(noted)}")
    starts: list[int] = []
    words: list[int] = []
    entries: list[Entry] = []
    programs = place = 0
    for name, (source, shape, rows, length) in noted.items():
        count = 1 if rows is None else shape[0]
        size = length // count if count else 0
        stride, numbers = 0, 0
        if rows is not None:
            stride, numbers = source.element_size() * source.stride(0), rows.data_ptr()
        address = source.data_ptr()
        unit = 1 if (address | size | stride) % 4 else 4
        starts.append(programs)
        words += (address, size, place, stride, numbers, count, unit)
        entries.append((name, SPELLED[source.dtype], shape))
        programs += -(-length // CHUNK)
        place = up(place + length)
    block = torch.empty(HEADER + place, dtype=torch.uint8, pin_memory=True)
    data: Any = block.numpy()
    starts += NEVER * (ENTRIES - len(starts))
    struct.pack_into(f"={ENTRIES}i{len(words)}Q", data, 0, *starts, *words)
    if programs:
        _gather((programs,), (block,), 4, ENTRIES=ENTRIES, CHUNK=CHUNK)
    return Packed(tuple(entries), data, HEADER)


def by_torch(noted: dict[str, Noted]) -> Packed:
    """Some launches an array, and a copy."""
    entries: list[Entry] = []
    parts: list[torch.Tensor] = []
    for name, each in noted.items():
        found = values_of(each)
        own = found.reshape(-1).view(torch.uint8)
        entries.append((name, SPELLED[found.dtype], tuple(found.shape)))
        parts += (own, own.new_zeros(up(len(own)) - len(own)))
    block = torch.cat(parts)
    target = torch.empty(len(block), dtype=torch.uint8, pin_memory=True)
    target.copy_(block, non_blocking=True)
    return Packed(tuple(entries), target.numpy())


def on_host(noted: dict[str, Noted]) -> Packed:
    """The plain twin for tensors of the host: copied at once."""
    entries: list[Entry] = []
    parts: list[Any] = []
    for name, each in noted.items():
        found = values_of(each).numpy()
        entries.append((name, SPELLED[each.source.dtype], tuple(found.shape)))
        own = np.ascontiguousarray(found).reshape(-1).view(np.uint8)
        parts += (own, np.zeros(up(len(own)) - len(own), np.uint8))
    return Packed(tuple(entries), np.concatenate(parts))


def values_of(noted: Noted) -> torch.Tensor:
    """The same as a tensor."""
    source, shape, rows, length = noted
    if rows is not None:
        return source[:, : shape[1]].index_select(0, rows)
    return source.detach().reshape(-1)[: length // source.element_size()].reshape(shape)


@cache
def _kernel() -> Any:
    """Compiled where there is a GPU: Triton is imported then alone."""
    import triton

    from engine.sglang.snapshot_kernel import gather_arrays

    return triton.jit(gather_arrays)


_gather = Launch(_kernel)
