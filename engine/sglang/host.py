"""Copies to the host that nobody waits for: into pinned memory, in the order of a stream, an event at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.sglang.packed import Packed
from engine.sglang.snapshot import SPELLED, Gathering, Noted, on_host

MAX_ARRAY_BYTES = 64 << 20  # of one array of one step


class NotCopied(Exception):
    """An array of this step is not taken; the text says which and why."""


@dataclass(frozen=True)
class Arriving:
    """A copy under way, with what it reads and where it goes: freed earlier, these could belong to others."""

    event: Any
    kept: tuple[Any, ...]


gathering = Gathering()  # of this process

# The last ones, so that a step that is given up frees nothing that a copy still uses.
_latest: deque[Arriving] = deque(maxlen=32)


@dataclass
class HostCopies:
    """Groups of arrays on their way to the host. :meth:`take` notes one, :meth:`mark` starts what was noted."""

    packs: list[Packed] = field(default_factory=list)
    arriving: list[Arriving] = field(default_factory=list)
    noted: dict[str, Noted] = field(default_factory=dict)

    def take(self, name: str, source: torch.Tensor | None, length: int | None = None) -> None:
        """Note a tensor, or its first ``length`` entries; None is left out.

        On a device it must stay as it is until :meth:`mark`. Raises :class:`NotCopied` beyond ``MAX_ARRAY_BYTES``.
        """
        if source is None:
            return
        shape = tuple(source.shape)
        if length is not None and length < shape[0]:
            shape = (length, *shape[1:])
        if not source.is_contiguous():
            source = source.contiguous()
        self._note(name, Noted(source, shape))

    def take_rows(self, name: str, table: torch.Tensor, columns: int, rows: torch.Tensor) -> None:
        """Note the first ``columns`` of some rows of a table [*, n]; ``rows`` as int64 or int32."""
        if rows.dtype != torch.int64 or not rows.is_contiguous():
            rows = rows.to(torch.int64).contiguous()
        if table.stride(1) != 1:
            table = table.contiguous()
        self._note(name, Noted(table, (len(rows), min(columns, table.shape[1])), rows))

    def _note(self, name: str, noted: Noted) -> None:
        size = noted.source.element_size()
        for extent in noted.shape:
            size *= extent
        if size > MAX_ARRAY_BYTES:
            raise NotCopied(f"{name}: expected at most {MAX_ARRAY_BYTES} bytes, found {size}")
        if noted.source.dtype not in SPELLED:
            found = noted.source.dtype
            raise NotCopied(f"{name}: expected numbers that numpy knows, found {found}")
        if noted.source.is_cuda:
            self.noted[name] = noted
        else:
            self.packs.append(on_host({name: noted}))

    def join(self, other: HostCopies) -> None:
        """Add what another one noted and started."""
        self.noted.update(other.noted)
        self.packs += other.packs
        self.arriving += other.arriving

    def mark(self) -> None:
        """Start the copies of everything noted so far, as it stands at this point of the current stream."""
        if self.noted:
            noted, self.noted = self.noted, {}
            pack = gathering(noted)
            event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record()
            copy = Arriving(event, (noted, pack))
            _latest.append(copy)
            self.arriving.append(copy)
            self.packs.append(pack)

    @property
    def names(self) -> set[str]:
        """Of everything noted and started."""
        return {*self.noted, *(name for pack in self.packs for name, _, _ in pack.entries)}


class Aside:
    """A stream beside the server's, for work that the server need not wait for."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._busy = False

    def run(self, work: Callable[[], None], on: torch.Tensor) -> None:
        """``work()`` there, after what the server's stream has been given so far; at once on the host."""
        if not on.is_cuda:
            work()
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(on.device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
        self._busy = True

    def done(self) -> None:
        """What the server's stream is given from here on comes after that work: it may write to what was read."""
        if self._busy:
            torch.cuda.current_stream().wait_stream(self._stream)
            self._busy = False


def capturing(tensor: torch.Tensor | None) -> bool:
    """Whether the current stream is being captured into a graph."""
    return tensor is not None and tensor.is_cuda and torch.cuda.is_current_stream_capturing()
