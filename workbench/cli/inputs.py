"""What ``ddtree check`` reads: every path as one or several recordings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.trace import Trace

LOOKED_INTO = 1000  # folders
SUFFIXES = (".ddtree.arrow", ".jsonl", ".ddtree.zip")
Opened = tuple[Path, "Trace | Exception"]


def open_inputs(paths: Iterable[Path]) -> Iterator[Opened]:
    """Each recording under the paths, or why it cannot be opened."""
    for path in paths:
        yield from _directory(path) if path.is_dir() else [_opened(path)]


def _opened(path: Path) -> Opened:
    from engine.trace import open_trace

    try:
        return path, open_trace(path)
    except (ValueError, OSError) as error:
        return path, error


def _directory(path: Path) -> list[Opened]:
    """One recording where the files are the ranks of one run, otherwise one a file; snapshots stand
    alone.
    """
    from engine.trace.reader import trace_files

    try:
        snapshots = sorted(path.glob("*.zip"))
        files = [] if snapshots and not _has_traces(path) else trace_files(path)
    except (ValueError, OSError) as error:
        return [(path, error)]
    merged = _opened(path) if len(files) > 1 else None
    if merged is not None and not isinstance(merged[1], Exception):
        return [merged, *map(_opened, snapshots)]
    return [*map(_opened, files), *map(_opened, snapshots)]


def unread_below(path: Path) -> Path | None:
    """A folder inside a directory that holds recordings too: those are read only where it is named."""
    for folder, inside, names in islice(os.walk(path), LOOKED_INTO):
        inside.sort()
        if Path(folder) != path and any(name.endswith(SUFFIXES) for name in names):
            return Path(folder)
    return None


def _has_traces(path: Path) -> bool:
    return any(True for pattern in ("*.ddtree.arrow", "*.jsonl") for _ in path.glob(pattern))
