"""The driver's end of one worker: what it is asked, what it brings back, how it is let go."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.isolate.cell import Cell
from engine.isolate.codec import MEASURED
from engine.isolate.measured import Measured
from engine.isolate.ray_cluster import ClusterError
from engine.isolate.ray_worker import PART
from engine.isolate.recorded import free_place
from engine.trace.writer import SUFFIX

FETCH = 120.0  # seconds of one part of a file
MOST_BYTES = 8 << 30  # of a file
END = 45.0  # seconds that ending a server may take


class Hired:
    """One worker, which measures one cell at a time. ``ref``: what it is at; None: nothing."""

    def __init__(self, ray: Any, handle: Any, traces: Path) -> None:
        self._ray, self._handle, self._traces = ray, handle, traces
        self.ref: Any = None
        self.ready = False  # whether it has answered at all
        self.leaving = False
        self.cell: Cell | None = None
        self.group: deque[Cell] = deque()  # cells that it measures next
        self.idle()

    def idle(self) -> None:
        """Have it say that it is there."""
        self.cell, self.ref = None, self._handle.state.remote()

    def begin(self) -> Cell:
        """The next cell of its group."""
        self.cell = self.group.popleft()
        self.ref = self._handle.measure.remote(self.cell.key)
        return self.cell

    def ask_plain(self) -> None:
        """Instead of a cell."""
        self.ref = self._handle.ask_plain.remote()

    def answer(self) -> Any:
        """What came of ``ref``. Raises :class:`ClusterError` where the worker is gone or failed."""
        ref, self.ref = self.ref, None
        found = self._get(ref)
        self.ready = True
        return found

    def _get(self, ref: Any, timeout: float | None = None) -> Any:
        try:
            return self._ray.get(ref, timeout=timeout)
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            words = str(cause).strip().rpartition("\n")[2][:300]
            raise ClusterError(f"worker: {type(cause).__name__}: {words}") from None

    def measured(self) -> Measured:
        """The cell that it was at, with its files in the folder of traces. Raises :class:`ClusterError`."""
        assert self.cell is not None
        line, files = self.answer()
        try:
            result = MEASURED.loads(line, f"worker, cell {self.cell.key}")
        except ValueError as error:  # another version of this package
            raise ClusterError(str(error)) from None
        if result.cell != self.cell:
            raise ClusterError(f"worker: expected cell {self.cell.key}, found {result.cell.key}")
        names = {name: self._fetch(name, size) for name, size in sorted(files.items())}
        return replace(result, trace=names.get(result.trace or "", result.trace))

    def state(self) -> str:
        """In its own words; empty where it does not say at once."""
        try:
            words, _ = self._ray.get(self._handle.state.remote(), timeout=1.0)
        except self._ray.exceptions.RayError:
            return ""
        return str(words)[:200]

    def leave(self) -> None:
        """Have it end what it started; it takes no more cells."""
        self.leaving, self.cell, self.ref = True, None, self._handle.close.remote()

    def stop(self) -> None:
        """Have it give up what it is at."""
        if self.ready:
            self._handle.stop.remote()

    def let_go(self) -> None:
        """Have it end what it started, then end it."""
        try:
            if self.ready:
                self.stop()
                if self.ref is not None:
                    self._ray.wait([self.ref], timeout=END)
                if not self.leaving:
                    self._ray.get(self._handle.close.remote(), timeout=END)
        except self._ray.exceptions.RayError:
            pass  # it is gone, or as good as: its servers end with it
        finally:
            self._ray.kill(self._handle)

    def _fetch(self, name: str, size: int) -> str:
        """Bring one file; recordings are never overwritten, logs are. Returns its name here."""
        if Path(name).name != name or name.startswith(".") or not 0 <= size <= MOST_BYTES:
            expected = f"a file name and at most {MOST_BYTES} bytes"
            raise ClusterError(f"worker: expected {expected}, found {name!r} with {size}")
        place = self._traces / name
        if name.endswith(SUFFIX):
            place = free_place(self._traces, name.removesuffix(SUFFIX))
        beside = place.with_name(f".{place.name}.part")
        with open(beside, "wb") as file:
            while (offset := file.tell()) < size:
                ref = self._handle.part.remote(name, offset, size - offset)
                data = self._get(ref, FETCH)
                if not 0 < len(data) <= PART:
                    raise ClusterError(f"worker: {name}: expected {size} bytes, found {offset}")
                file.write(data)
        beside.replace(place)
        return place.name
