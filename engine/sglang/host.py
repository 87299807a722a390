"""Copies to the host that nobody waits for: pinned memory, in the order of the stream, an event at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

MAX_ARRAY_BYTES = 64 << 20  # of one array of one step


class NotCopied(Exception):
    """An array of this step is not taken; the text says which and why."""


@dataclass
class HostCopies:
    """Arrays of one step on their way to the host: name -> CPU tensor, filled once ``ready`` has happened."""

    arrays: dict[str, torch.Tensor] = field(default_factory=dict)
    ready: list[Any] = field(default_factory=list)  # events of CUDA streams
    under_way: bool = False  # copies since the last mark

    def take(self, name: str, source: torch.Tensor | None) -> None:
        """Start the copy of a tensor; None is left out. Raises :class:`NotCopied` beyond ``MAX_ARRAY_BYTES``."""
        if source is None:
            return
        size = source.numel() * source.element_size()
        if size > MAX_ARRAY_BYTES:
            raise NotCopied(f"{name}: expected at most {MAX_ARRAY_BYTES} bytes, found {size}")
        if not source.is_cuda:
            self.arrays[name] = source.detach().clone()
            return
        target = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
        target.copy_(source.detach(), non_blocking=True)
        source.record_stream(torch.cuda.current_stream())  # may be freed and reused on another one
        self.arrays[name] = target
        self.under_way = True

    def mark(self) -> None:
        """Everything taken so far is on the host once this point of the current stream is reached."""
        if self.under_way:
            self.under_way = False
            event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record()
            self.ready.append(event)

    def join(self, other: HostCopies) -> None:
        """Add the arrays of an earlier hook of the same step."""
        self.arrays = {**other.arrays, **self.arrays}
        self.ready = [*other.ready, *self.ready]

    def wait(self) -> None:
        """Block until all copies have arrived: only in the writer's thread."""
        for event in self.ready:
            event.synchronize()

    @property
    def bytes(self) -> int:
        """Of all arrays together."""
        return sum(t.numel() * t.element_size() for t in self.arrays.values())


def capturing(tensor: torch.Tensor | None) -> bool:
    """Whether the current stream is being captured into a graph."""
    return tensor is not None and tensor.is_cuda and torch.cuda.is_current_stream_capturing()
