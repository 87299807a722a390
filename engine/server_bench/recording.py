"""Turns a server's tap on for one name and off for the others, so that one server shows what recording costs it.

Two servers differ by more than a tap takes: their draft caches, their place on the machine, which requests met in a
batch. One server that records in every other turn has only the recording differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.server_bench.control_file import WAIT, ControlFile


class Recordings:
    """``folders``: the trace folder of a server's tap, by the name that is measured while it records."""

    def __init__(self, folders: Mapping[str, Path], wait: float = WAIT) -> None:
        self._folders = dict(folders)
        self._files = {folder: ControlFile(folder, wait) for folder in self._folders.values()}

    def turn(self, name: str) -> None:
        """Record in the folder of ``name`` alone, and wait until every rank does. Raises ``ValueError``."""
        for folder, file in self._files.items():
            file.set(record=self._folders.get(name) == folder)

    def restore(self) -> None:
        """The control files as they were. Raises ``OSError`` for one that cannot be, once the others are."""
        failure: OSError | None = None
        for file in self._files.values():
            try:
                file.restore()
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def folders_of(words: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """``NAME=FOLDER`` of servers that are measured. Raises ``ValueError``."""
    folders: dict[str, Path] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        if not equals or not folder:
            raise ValueError(f"record: expected NAME=FOLDER, found {word!r}")
        if name not in names:
            raise ValueError(
                f"record: expected the name of a server ({', '.join(names)}), found {name!r}"
            )
        if name in folders:
            raise ValueError(f"record: expected each name once, found {name!r} twice")
        if not Path(folder).is_dir():
            raise ValueError(
                f"record: expected the folder that DDTREE_TRACE_DIR names, found {folder!r}"
            )
        folders[name] = Path(folder).resolve()  # one folder, however it is spelled
    return folders
