"""Copies to the host that nobody waits for: one block of pinned memory a group, in the order of the stream, an event.

A copy of its own for each array would cost the server's thread some ten microseconds apiece. A group is put together on
the device by one kernel and leaves it in one copy; :class:`Aside` does both beside the server's stream, :class:`Slab`
has everything ready before it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.sglang.packed import Entry, Packed

MAX_ARRAY_BYTES = 64 << 20  # of one array of one step
SPELLED = {dtype: str(dtype).removeprefix("torch.") for dtype in (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64,
)}  # fmt: skip


class NotCopied(Exception):
    """An array of this step is not taken; the text says which and why."""


@dataclass(frozen=True)
class Arriving:
    """A copy under way. Its sources are kept until then: freed earlier, another stream could write over them."""

    event: Any
    sources: list[torch.Tensor]


@dataclass
class HostCopies:
    """Groups of arrays on their way to the host. :meth:`take` notes one, :meth:`mark` starts what was noted."""

    packs: list[Packed] = field(default_factory=list)
    arriving: list[Arriving] = field(default_factory=list)
    noted: dict[str, torch.Tensor] = field(default_factory=dict)

    def take(self, name: str, source: torch.Tensor | None) -> None:
        """Note a tensor; None is left out. On a device it must stay as it is until :meth:`mark`.

        Raises :class:`NotCopied` beyond ``MAX_ARRAY_BYTES``.
        """
        if source is None:
            return
        size = source.numel() * source.element_size()
        if size > MAX_ARRAY_BYTES:
            raise NotCopied(f"{name}: expected at most {MAX_ARRAY_BYTES} bytes, found {size}")
        if source.dtype not in SPELLED:
            raise NotCopied(f"{name}: expected numbers that numpy knows, found {source.dtype}")
        self.noted[name] = source if source.is_cuda else source.detach().clone()

    def join(self, other: HostCopies) -> None:
        """Add what another one noted and started."""
        self.noted.update(other.noted)
        self.packs += other.packs
        self.arriving += other.arriving

    def mark(self) -> None:
        """Start the copies of everything noted so far, as it stands at this point of the current stream."""
        for on_device in (True, False):
            group = {name: t for name, t in self.noted.items() if t.is_cuda is on_device}
            if group:
                self._start(group, on_device)
        self.noted = {}

    def _start(self, group: dict[str, torch.Tensor], on_device: bool) -> None:
        sources = list(group.values())
        parts = [source.reshape(-1).view(torch.uint8) for source in sources]
        block = parts[0] if len(parts) == 1 else torch.cat(parts)
        if on_device:
            target = torch.empty(block.shape, dtype=torch.uint8, pin_memory=True)
            target.copy_(block, non_blocking=True)
            event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record()
            self.arriving.append(Arriving(event, [*sources, block]))
            block = target
        entries: tuple[Entry, ...] = tuple(
            (name, SPELLED[source.dtype], tuple(source.shape)) for name, source in group.items()
        )
        self.packs.append(Packed(entries, block.numpy()))

    @property
    def names(self) -> set[str]:
        """Of everything noted and started."""
        return {*self.noted, *(name for pack in self.packs for name, _, _ in pack.entries)}


class Slab:
    """Arrays whose shapes are known before their contents: views to fill, and one copy of them all."""

    def __init__(
        self, entries: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...], on: torch.Tensor
    ):
        """On the device of ``on``; wider types first, so that every view is aligned."""
        sizes = [math.prod(shape) * dtype.itemsize for _, dtype, shape in entries]
        self._block = torch.empty(sum(sizes), dtype=torch.uint8, device=on.device)
        parts = torch.split(self._block, sizes)
        self.views = [
            part.view(dtype).view(shape)
            for part, (_, dtype, shape) in zip(parts, entries, strict=True)
        ]
        self._entries = tuple((name, SPELLED[dtype], shape) for name, dtype, shape in entries)
        self._event: Any = None
        self._target = self._block
        if on.is_cuda:
            self._target = torch.empty(self._block.shape, dtype=torch.uint8, pin_memory=True)
            self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def send(self, copies: HostCopies) -> None:
        """Start the copy of the views as they stand at this point of the current stream; once."""
        if self._event is not None:
            self._target.copy_(self._block, non_blocking=True)
            self._event.record()
            copies.arriving.append(Arriving(self._event, [self._block]))
        copies.packs.append(Packed(self._entries, self._target.numpy()))


class Aside:
    """A stream beside the server's: copies run there while the server's own work goes on."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._last: Any = None

    def mark(
        self, copies: HostCopies, on: torch.Tensor, more: Callable[[], None] | None = None
    ) -> None:
        """``copies.mark()`` of what stands at this point of the server's stream, after ``more()`` there."""
        if not on.is_cuda:
            if more is not None:
                more()
            copies.mark()
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(on.device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            if more is not None:
                more()
            copies.mark()
        if copies.arriving:
            self._last = copies.arriving[-1].event

    def done(self) -> None:
        """What the server's stream does from here on comes after the copies: it may write to what they read."""
        if self._last is not None:
            torch.cuda.current_stream().wait_event(self._last)
            self._last = None


def capturing(tensor: torch.Tensor | None) -> bool:
    """Whether the current stream is being captured into a graph."""
    return tensor is not None and tensor.is_cuda and torch.cuda.is_current_stream_capturing()
