"""Packed: arrays of one step, one after the other in one block of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Entry = tuple[str, str, tuple[int, ...]]  # name, dtype as numpy spells it, shape
ALIGNED = 8  # bytes that each array's place is a multiple of


def up(size: int) -> int:
    """The next multiple of ``ALIGNED``."""
    return -(-size // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class Packed:
    """``data`` uint8: the entries in order from ``start`` on. It may still be on its way; see ``RawStep.wait``."""

    entries: tuple[Entry, ...]
    data: NDArray[np.uint8]
    start: int = 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name: views. Raises ``ValueError`` where the block is too short."""
        found: dict[str, NDArray[Any]] = {}
        start = self.start
        for name, spelled, shape in self.entries:
            dtype = np.dtype(spelled)
            end = start + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            if end > len(self.data):
                raise ValueError(
                    f"{name}: expected {end - start} bytes from {start} on, found {len(self.data) - start}"
                )
            found[name] = self.data[start:end].view(dtype).reshape(shape)
            start = up(end)
        return found
