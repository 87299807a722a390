"""open_trace: one way to read every recording, whichever file or files it lies in.

Accepted: ``.ddtree.arrow`` and ``.jsonl`` files (told apart by their first bytes), snapshots
(``.zip``), and a directory that holds one file a rank. Steps are decoded when asked for. Raises
``TraceFormatError`` for what is not such a recording and ``OSError`` for what cannot be opened.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from engine.step import VerifyStep
from engine.trace.archive import require_regular
from engine.trace.arrow_file import ArrowFile
from engine.trace.errors import TraceFormatError
from engine.trace.header import TraceHeader
from engine.trace.jsonl_file import JsonlFile
from engine.trace.limits import MAX_FILES
from engine.trace.writer import SUFFIX

Key = tuple[int, int]  # step, rank
ARROW_MAGIC, ZIP_MAGIC = b"\xff\xff\xff\xff", b"PK"


class StepFile(Protocol):
    """Steps of one file."""

    path: Path
    header: TraceHeader
    truncated: bool

    def __len__(self) -> int: ...

    def step(self, position: int) -> VerifyStep:
        """Decode one step."""

    def key(self, position: int) -> Key:
        """Number and rank of one step."""

    def refresh(self) -> int:
        """Look for steps that were appended."""

    def digest(self) -> str:
        """SHA-256 in hex."""


class Trace:
    """A recording: steps in order of time. ``trace.step(i)``, ``len(trace)`` and iteration go by
    position.
    """

    def __init__(self, path: Path, files: list[StepFile], *, merge: bool = False):
        self.path = path
        self._files = files
        self._merge = merge  # in order of step, then rank; otherwise in the order of the file
        self._keys: list[list[Key]] = [[] for _ in files]
        self._places: list[tuple[int, int]] = []  # (file, position in it)
        self._digest: str | None = None
        self._order()

    @property
    def header(self) -> TraceHeader:
        """What the first file says about itself."""
        return self._files[0].header

    @property
    def truncated(self) -> bool:
        """Whether a file ends within a step; the complete steps before it are there."""
        return any(file.truncated for file in self._files)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that recorded a step."""
        return tuple(sorted({rank for keys in self._all_keys() for _, rank in keys}))

    @property
    def digest(self) -> str:
        """SHA-256 in hex: of the file's complete steps, or of the files' digests where there are
        several.
        """
        if self._digest is None:
            digests = [file.digest() for file in self._files]
            joined = "\n".join(digests).encode()
            one = len(digests) == 1
            self._digest = digests[0] if one else hashlib.sha256(joined).hexdigest()
        return self._digest

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[VerifyStep]:
        return map(self.step, range(len(self)))

    def step(self, position: int) -> VerifyStep:
        """The step at a position 0 … len-1. Raises ``TraceFormatError``, ``IndexError`` outside."""
        if not 0 <= position < len(self):
            raise IndexError(f"position: expected 0 … {len(self) - 1}, found {position}")
        file, inner = self._places[position]
        return self._files[file].step(inner)

    def key(self, position: int) -> Key:
        """Step number and rank at a position."""
        file, inner = self._places[position]
        return self._all_keys()[file][inner]

    def index(self, step: int, rank: int) -> int:
        """Position of a rank's step (the first one). Raises ``KeyError`` where it is not
        recorded.
        """
        keys = self._all_keys()
        for position, (file, inner) in enumerate(self._places):
            if keys[file][inner] == (step, rank):
                return position
        raise KeyError(f"step {step} of rank {rank} is not recorded in {self.path}")

    def refresh(self) -> int:
        """Read what was appended; returns how many steps there are now. Positions change only in a
        directory.
        """
        for file in self._files:
            file.refresh()
        self._digest = None
        self._order()
        return len(self)

    def _order(self) -> None:
        self._places = [(f, i) for f, file in enumerate(self._files) for i in range(len(file))]
        if self._merge:
            keys = self._all_keys()
            self._places.sort(key=lambda place: (keys[place[0]][place[1]], place))

    def _all_keys(self) -> list[list[Key]]:
        for keys, file in zip(self._keys, self._files, strict=True):
            for position in range(len(keys), len(file)):
                keys.append(file.key(position))
        return self._keys


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a recording, see the module's docstring."""
    path = Path(path)
    if path.is_dir():
        return merge_ranks(path, [open_file(file) for file in trace_files(path)])
    return Trace(path, [open_file(path)])


def trace_files(directory: Path) -> list[Path]:
    """Recordings that a directory holds, by name. Raises ``TraceFormatError`` where there is
    none.
    """
    found = sorted(p for p in directory.iterdir() if p.name.endswith((SUFFIX, ".jsonl")))
    if not 0 < len(found) <= MAX_FILES:
        expected = f"expected 1 … {MAX_FILES} files *{SUFFIX} or *.jsonl, found {len(found)}"
        raise TraceFormatError(expected, str(directory))
    return found


def open_file(path: Path) -> StepFile:
    """One file's steps; what it is follows from its first bytes."""
    require_regular(path)
    with open(path, "rb") as file:
        start = file.read(4)
    if not start:
        raise TraceFormatError("expected at least one step, found an empty file", str(path))
    if start == ARROW_MAGIC[: len(start)]:
        return ArrowFile(path)
    if start.startswith(ZIP_MAGIC):
        from engine.trace.snapshot import open_steps

        return open_steps(path)
    return JsonlFile(path)


def merge_ranks(path: Path, files: list[StepFile]) -> Trace:
    """One recording from one file a rank. Raises ``TraceFormatError`` where two files hold the same
    step and rank.
    """
    trace = Trace(path, files, merge=True)
    for position in range(1, len(trace)):
        here, before = trace.key(position), trace.key(position - 1)
        names = [files[trace._places[p][0]].path.name for p in (position - 1, position)]
        if here == before and names[0] != names[1]:
            message = f"expected one file a rank, found rank {here[1]} in {names[0]} and {names[1]}"
            raise TraceFormatError(message, str(path), field="rank")
    return trace
