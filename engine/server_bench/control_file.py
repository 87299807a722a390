"""The control file of a server's tap, changed while something is measured and put back afterwards."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

WAIT = 10.0  # seconds until a tap must have followed; it looks once a second


class ControlFile:
    """``folder``: what ``DDTREE_TRACE_DIR`` names for the server."""

    def __init__(self, folder: Path, wait: float = WAIT) -> None:
        self.folder, self._wait = folder, wait
        self._known = False
        self._before: bytes | None = None
        self._changed: dict[str, Any] = {}

    def set(self, **settings: Any) -> None:
        """Change these and leave the others, and wait until every rank follows. Raises ``ValueError``."""
        until = time.monotonic() + self._wait
        while not (ranks := self.ranks()):
            if time.monotonic() > until:
                raise ValueError(
                    f"{self.folder}: expected a health file of a tap (DDTREE_TRACE_DIR of the server), found none"
                )
            time.sleep(0.1)
        if not self._known:
            self._known, self._before = True, _content(self.folder)
        self._changed |= settings
        wanted = _settings(self.folder, self._before) | self._changed
        _replace(self.folder, json.dumps(wanted).encode())
        while not all(_follows(rank, settings) for rank in ranks):
            if time.monotonic() > until:
                words = ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items())
                raise ValueError(
                    f"{self.folder}: expected every rank to follow ({words}) within {self._wait:g} s"
                )
            time.sleep(0.1)

    def restore(self) -> None:
        """The file as it was. Raises ``OSError``."""
        if not self._known:
            return
        self._known, self._changed = False, {}
        if self._before is None:
            (self.folder / "control.json").unlink(missing_ok=True)
        else:
            _replace(self.folder, self._before)

    def ranks(self) -> list[Path]:
        """Health files of ranks."""
        return sorted(self.folder.glob("health.*rank*.json"))


def health_of(path: Path) -> dict[str, Any]:
    """A rank's health file; empty where it cannot be read."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _follows(rank: Path, settings: dict[str, Any]) -> bool:
    control = health_of(rank).get("control")
    if not isinstance(control, dict):
        return False
    return all(name in control and control[name] == value for name, value in settings.items())


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


def _replace(folder: Path, content: bytes) -> None:
    beside = folder / "control.json.new"
    beside.write_bytes(content)
    beside.replace(folder / "control.json")
