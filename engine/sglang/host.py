"""Copies to the host that nobody waits for: into pinned memory, in the order of a stream, an event at the end."""

from __future__ import annotations

from collections import deque
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
    """Copies under way, with what they read and where they go: freed earlier, these could belong to others."""

    event: Any
    kept: tuple[Any, ...]


gathering = Gathering()  # of this process

# The last ones, so that a step that is given up frees nothing that a copy still uses.
_latest: deque[Any] = deque(maxlen=32)
_streams: dict[int, Any] = {}  # by the driver's number


@dataclass
class HostCopies:
    """Groups of arrays on their way to the host: :meth:`take` notes one, :meth:`mark` starts what was noted,
    :meth:`fence` tells when all have arrived.
    """

    packs: list[Packed] = field(default_factory=list)
    noted: dict[str, Noted] = field(default_factory=dict)
    started: dict[int, list[Any]] = field(default_factory=dict)  # by stream: what must be kept

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
        self._note(name, source, shape, None)

    def take_rows(self, name: str, table: torch.Tensor, columns: int, rows: torch.Tensor) -> None:
        """Note the first ``columns`` of some rows of a table [*, n]; ``rows`` as int64 or int32."""
        if rows.dtype != torch.int64 or not rows.is_contiguous():
            rows = rows.to(torch.int64).contiguous()
        if table.stride(1) != 1:
            table = table.contiguous()
        self._note(name, table, (rows.shape[0], min(columns, table.shape[1])), rows)

    def _note(
        self, name: str, source: torch.Tensor, shape: tuple[int, ...], rows: torch.Tensor | None
    ) -> None:
        length = source.element_size()
        for extent in shape:
            length *= extent
        if length > MAX_ARRAY_BYTES:
            raise NotCopied(f"{name}: expected at most {MAX_ARRAY_BYTES} bytes, found {length}")
        if source.dtype not in SPELLED:
            found = source.dtype
            raise NotCopied(f"{name}: expected numbers that numpy knows, found {found}")
        noted = Noted(source, shape, rows, length)
        if source.is_cuda:
            self.noted[name] = noted
        else:
            self.packs.append(on_host({name: noted}))

    def join(self, other: HostCopies) -> None:
        """Add what another one noted and started."""
        self.noted.update(other.noted)
        self.packs += other.packs
        for number, kept in other.started.items():
            self.started.setdefault(number, []).extend(kept)

    def mark(self) -> None:
        """Start the copies of everything noted so far, as it stands at this point of the current stream."""
        if self.noted:
            noted, self.noted = self.noted, {}
            pack = gathering(noted)
            number = current_stream()
            _latest.append((noted, pack))
            self.packs.append(pack)
            self.started.setdefault(number, []).append((noted, pack))

    def fence(self) -> list[Arriving]:
        """One event a stream, behind everything that was started there."""
        return [Arriving(recorded(number), tuple(kept)) for number, kept in self.started.items()]

    @property
    def names(self) -> set[str]:
        """Of everything noted and started."""
        return {*self.noted, *(name for pack in self.packs for name, _, _ in pack.entries)}


def current_stream() -> int:
    """The driver's number of the current stream; torch's own object costs more and is made once a stream."""
    number = int(torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice()))
    if number not in _streams:
        _streams[number] = torch.cuda.current_stream()
    return number


def recorded(number: int) -> Any:
    """An event at the end of what this stream has been given; waiting for it takes no processor."""
    event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record(_streams[number])
    return event


def capturing(tensor: torch.Tensor | None) -> bool:
    """Whether the current stream is being captured into a graph."""
    return tensor is not None and tensor.is_cuda and torch.cuda.is_current_stream_capturing()
