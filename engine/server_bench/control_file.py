"""The control file of a server's tap, changed while something is measured and put back afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

WAIT = 10.0  # seconds until a tap must have followed; it looks once a second
BEFORE = "control.json.before"  # while something is measured: what was there, and what is there meanwhile


class ControlFile:
    """``folder``: what ``DDTREE_TRACE_DIR`` names for the server. One measurement at a time may hold it."""

    def __init__(self, folder: Path, wait: float = WAIT) -> None:
        self.folder, self._wait = folder, wait
        self._lock: int | None = None
        self._before = b""
        self._changed: dict[str, Any] = {}

    def set(self, **settings: Any) -> None:
        """Change these and leave the others, and wait until every rank follows. Raises ``ValueError``."""
        until = time.monotonic() + self._wait
        while not (ranks := self.ranks()):
            if time.monotonic() > until:
                raise ValueError(
                    f"{self.folder}: expected a health file of a tap that records (DDTREE_TRACE_DIR of the server), "
                    f"found {self._found()}"
                )
            time.sleep(0.1)
        if self._lock is None:
            self._hold()
        self._changed |= settings
        wanted = json.dumps(_settings(self.folder, self._before) | self._changed).encode()
        kept = {"before": self._before.decode("latin-1"), "meanwhile": wanted.decode()}
        _replace(self.folder / BEFORE, json.dumps(kept).encode())
        _replace(self.folder / "control.json", wanted)
        while late := [rank for rank in ranks if not _follows(rank, settings)]:
            if time.monotonic() > until:
                words = ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items())
                raise ValueError(
                    f"{self.folder}: expected every rank to follow ({words}) within {self._wait:g} s, "
                    f"found {'; '.join(_told(rank) for rank in late[:4])}"
                )
            time.sleep(0.1)

    def restore(self) -> None:
        """The file as it was. Raises ``OSError``."""
        if self._lock is None:
            return
        lock, self._lock, self._changed = self._lock, None, {}
        try:
            if self._before:
                _replace(self.folder / "control.json", self._before)
            else:
                (self.folder / "control.json").unlink(missing_ok=True)
            (self.folder / BEFORE).unlink(missing_ok=True)
        finally:
            os.close(lock)

    def ranks(self) -> list[Path]:
        """Health files of ranks whose recording has not ended."""
        files = sorted(self.folder.glob("health.*rank*.json"))
        return [file for file in files if health_of(file).get("state", "recording") == "recording"]

    def _hold(self) -> None:
        """Keep what is there, or what a measurement that was killed found there."""
        lock = os.open(self.folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks
                _lock(lock, self.folder)
            before = _content(self.folder)
            kept = health_of(self.folder / BEFORE)
            if kept.get("meanwhile") == before.decode("latin-1"):
                before = str(kept.get("before", "")).encode("latin-1")
            _settings(self.folder, before)
        except BaseException:
            os.close(lock)
            raise
        self._lock, self._before = lock, before

    def _found(self) -> str:
        """Health files that are no recording rank's."""
        files = sorted(self.folder.glob("health.*.json"))
        return "; ".join(_told(file) for file in files[:4]) or "none"


def health_of(path: Path) -> dict[str, Any]:
    """A JSON object such as a rank's health file; empty where it cannot be read."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _lock(descriptor: int, folder: Path) -> None:
    """Raises ``ValueError`` where another one holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            f"{folder}: expected nobody else to measure with this tap, found another measurement"
        ) from None


def _told(path: Path) -> str:
    health = health_of(path)
    parts = (health.get("state"), health.get("time"), health.get("control_problem"))
    words = ", ".join(str(part)[:200] for part in parts if part)
    return f"{path.name} ({words or 'no health file of a tap'})"


def _follows(rank: Path, settings: dict[str, Any]) -> bool:
    control = health_of(rank).get("control")
    if not isinstance(control, dict):
        return False
    return all(name in control and control[name] == value for name, value in settings.items())


def _content(folder: Path) -> bytes:
    try:
        return (folder / "control.json").read_bytes()
    except FileNotFoundError:
        return b""


def _settings(folder: Path, content: bytes) -> dict[str, Any]:
    """Of a control file. Raises ``ValueError``."""
    try:
        found: Any = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{folder / 'control.json'}: expected a JSON object, found something else")
    return found


def _replace(path: Path, content: bytes) -> None:
    """In one go; what a link points to, and with its permissions."""
    place = path.resolve()
    beside = place.with_name(f"{place.name}.new")
    beside.write_bytes(content)
    if place.exists():
        shutil.copymode(place, beside)
    beside.replace(place)
