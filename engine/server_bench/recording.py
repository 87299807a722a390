"""Turns a server's tap on for one name and off for the others, so that one server shows what recording costs it.

Two servers differ by more than a tap takes: their draft caches, their place on the machine, which requests met in a
batch. One server that records in every other turn has only the recording differ.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WAIT = 10.0  # seconds until a tap must have followed; it looks once a second


class Recordings:
    """``folders``: the trace folder of a server's tap, by the name that is measured while it records."""

    def __init__(self, folders: Mapping[str, Path], wait: float = WAIT) -> None:
        self._folders, self._wait = dict(folders), wait
        self._before: dict[Path, bytes | None] = {}

    def turn(self, name: str) -> None:
        """Record in the folder of ``name`` alone, and wait until every rank does. Raises ``ValueError``."""
        for folder in dict.fromkeys(self._folders.values()):
            self._set(folder, self._folders.get(name) == folder)

    def restore(self) -> None:
        """The control files as they were. Raises ``OSError`` for one that cannot be, once the others are."""
        failure: OSError | None = None
        for folder, content in self._before.items():
            try:
                _put_back(folder, content)
            except OSError as error:
                failure = failure or error
        self._before.clear()
        if failure is not None:
            raise failure

    def _set(self, folder: Path, on: bool) -> None:
        until = time.monotonic() + self._wait
        while not (ranks := _ranks(folder)):
            if time.monotonic() > until:
                raise ValueError(
                    f"{folder}: expected a health file of a tap (DDTREE_TRACE_DIR of the server), found none"
                )
            time.sleep(0.1)
        if folder not in self._before:
            self._before[folder] = _content(folder)
        wanted = {**_settings(folder, self._before[folder]), "record": on}
        _replace(folder, json.dumps(wanted).encode())
        while not all(_records(rank) is on for rank in ranks):
            if time.monotonic() > until:
                words = "recording" if on else "not recording"
                raise ValueError(f"{folder}: expected every rank {words} after {self._wait:g} s")
            time.sleep(0.1)


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


def _ranks(folder: Path) -> list[Path]:
    return sorted(folder.glob("health.*rank*.json"))


def _records(health: Path) -> bool | None:
    try:
        found: Any = json.loads(health.read_text(encoding="utf-8"))["control"]["record"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, bool) else None


def _content(folder: Path) -> bytes | None:
    try:
        return (folder / "control.json").read_bytes()
    except FileNotFoundError:
        return None


def _settings(folder: Path, content: bytes | None) -> dict[str, Any]:
    """Of a control file. Raises ``ValueError``."""
    try:
        found: Any = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{folder / 'control.json'}: expected a JSON object, found something else")
    return found


def _put_back(folder: Path, content: bytes | None) -> None:
    if content is None:
        (folder / "control.json").unlink(missing_ok=True)
    else:
        _replace(folder, content)


def _replace(folder: Path, content: bytes) -> None:
    beside = folder / "control.json.new"
    beside.write_bytes(content)
    beside.replace(folder / "control.json")
