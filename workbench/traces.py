"""Which recordings there are: those that came along, the user's own, imported snapshots, and any
path.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SUFFIXES = (".ddtree.arrow", ".jsonl", ".ddtree.zip", ".zip")
FIRST = "sglang-16-4-verify-width"  # shown when nothing was chosen
VARIABLE = "DDTREE_TRACES"
LONGEST_NAME = 80  # bytes, without what is added to tell files apart


class Origin(StrEnum):
    """Where a recording comes from."""

    BUNDLED = "bundled"
    OWN = "own recording"
    IMPORTED = "imported snapshot"
    PATH = "path"


@dataclass(frozen=True)
class Entry:
    """A recording by the name that stands for it in the URL."""

    key: str
    path: Path
    origin: Origin

    @property
    def label(self) -> str:
        """What the picker shows."""
        return self.key if self.origin is Origin.BUNDLED else f"{self.key} ({self.origin})"


def traces_folder() -> Path:
    """``$DDTREE_TRACES``, or a folder in the user's cache; it need not exist."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return _expanded(chosen)
    from engine.models.cache import cache_folder  # slow to import

    return cache_folder() / "traces"


def _expanded(text: str) -> Path:
    """``~`` and ``~user`` made out where there is such a user; any other text as it is."""
    return Path(os.path.expanduser(text))


def imports_folder() -> Path:
    """Where imported snapshots are kept."""
    return traces_folder() / "imported"


def bundled_folder() -> Path:
    """Recordings that came along."""
    return Path(__file__).resolve().parents[1] / "fixtures" / "traces"


def key_of(path: Path) -> str:
    """File name without its suffix."""
    suffix = next((s for s in SUFFIXES if path.name.endswith(s)), "")
    return path.name.removesuffix(suffix)


def _listed(folder: Path, origin: Origin) -> list[Entry]:
    try:
        files = sorted(p for p in folder.iterdir() if p.name.endswith(SUFFIXES) and p.is_file())
    except OSError:  # not there, not a folder, or not ours to read
        return []
    return [Entry(_writable(key_of(path)), path, origin) for path in files]


def _writable(name: str) -> str:
    """A name that a URL and a page can hold: bytes that are no UTF-8 are written out."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed since it was listed
        return 0.0


def entries() -> list[Entry]:
    """Every recording that can be picked, own ones newest first; a name is listed once."""
    own = _listed(traces_folder(), Origin.OWN)
    own.sort(key=lambda entry: _modified(entry.path), reverse=True)
    imported = _listed(imports_folder(), Origin.IMPORTED)
    found: dict[str, Entry] = {}
    for entry in (*_listed(bundled_folder(), Origin.BUNDLED), *own, *imported):
        found.setdefault(entry.key, entry)
    return list(found.values())


def find(key: str, known: list[Entry]) -> Entry:
    """The entry of a name; any other text is a path."""
    by_key = {entry.key: entry for entry in known}
    return by_key.get(key) or Entry(key, _expanded(key), Origin.PATH)


def default_key(known: list[Entry]) -> str | None:
    """The story if it is there, else the first recording."""
    keys = [entry.key for entry in known]
    return FIRST if FIRST in keys else next(iter(keys), None)


def safe_name(text: str) -> str:
    """A file name without anything that a file system could misread, and short: it counts bytes."""
    plain = re.sub(r"[^\w.-]+", "-", text).strip(".-").encode()[:LONGEST_NAME]
    return plain.decode(errors="ignore") or "recording"
