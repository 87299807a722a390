"""Accepted paths on their way to the host: the copy is started, work goes on, and whoever needs them waits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Lists = list[list[int]]


class Arriving:
    """``packed`` of :class:`.accept.Accepted` as it is at this point of the stream; the memory is pinned."""

    def __init__(self, packed: Tensor) -> None:
        self._rows = packed.to("cpu", non_blocking=True)
        self._arrived: Any = None
        if packed.is_cuda:
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def lists(self) -> tuple[Lists, Lists]:
        """Paths and what the target says along them. Waits for the copy, not for what was launched after it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        rows = self._rows.tolist()
        steps = (self._rows.shape[1] - 1) // 2
        paths = [row[: row[-1]] for row in rows]
        return paths, [row[steps : steps + row[-1]] for row in rows]
