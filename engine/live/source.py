"""A directory that is followed: a local path, or a URL of any file system that fsspec knows.

Whatever a file system raises leaves here as ``OSError`` with the directory's name first: a follower tells it and tries
again. Nothing is ever written there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.trace.limits import MAX_FILES
from engine.trace.writer import SUFFIX

CHUNK = 4 << 20  # bytes that are read ahead
CONNECT = 10.0  # seconds
HEALTH = re.compile(r"health[-.].+\.json")
FOLDER = re.compile(r"again\d{1,4}|(?:dp|pp)\d{1,4}(?:-pp\d{1,4})?")  # that the tap makes


@dataclass(frozen=True)
class FileInfo:
    """One file as the directory lists it."""

    name: str  # with the folders inside the directory
    size: int  # bytes
    modified: float | None  # seconds since 1970; None: the file system does not say
    identity: str  # changes where another file took the name, as far as the file system tells


class Directory:
    """Listing and ranges of bytes. Raises ``ValueError`` for a URL that no file system takes."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url
        if not url.strip() or "::" in url or "\0" in url:
            raise ValueError(
                f"directory: expected a path or a URL such as sftp://host/path, found {url!r}"
            )
        options = {"timeout": CONNECT} if url.startswith(("sftp://", "ssh://")) else {}
        try:
            self._system, self._path = fsspec.core.url_to_fs(url, **options)
        except Exception as error:
            raise ValueError(f"{url}: {_words(error)}") from None
        self._local = "file" in _protocols(self._system)

    def files(self) -> list[FileInfo]:
        """Traces and health files, by name, those in folders of groups and of later starts too. Raises ``OSError``."""
        with self._told():
            self._system.invalidate_cache()
            found = sorted(self._listed("", deeper=2), key=lambda info: info.name)
        if len(found) > MAX_FILES:
            raise OSError(f"{self.url}: expected at most {MAX_FILES} files, found {len(found)}")
        return found

    def _listed(self, folder: str, deeper: int) -> Iterator[FileInfo]:
        for entry in self._system.ls(self._join(folder) if folder else self._path, detail=True):
            name = str(entry["name"]).rstrip("/").rpartition("/")[2]
            inside = f"{folder}/{name}" if folder else name
            if not folder and entry.get("type") == "file" and entry["name"] == self._path:
                raise NotADirectoryError
            if entry.get("type") == "file" and is_followed(name):
                yield _info(inside, entry)
            elif entry.get("type") == "directory" and deeper and FOLDER.fullmatch(name):
                yield from self._listed(inside, deeper - 1)

    def read(self, name: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes of a file. Raises ``OSError``."""
        with self._told():
            data: bytes = self._system.cat_file(self._join(name), start=offset, end=offset + length)
            return data

    def local_path(self, name: str) -> Path | None:
        """Where a file lies on this machine; None where it lies on another."""
        return Path(self._join(name)) if self._local else None

    def _join(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise OSError(f"{self.url}: there is no such directory or file") from None
        except NotADirectoryError:
            raise OSError(f"{self.url}: expected a directory, found a file") from None
        except Exception as error:
            raise OSError(f"{self.url}: {_words(error)}") from None


class GrowingBytes:
    """Random access to a file as far as it was listed, read ahead so that a far file costs few requests."""

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory, self._name = directory, name
        self._size = 0
        self._start, self._data = 0, b""

    def grown(self, size: int) -> None:
        """The file is so long now."""
        self._size = size

    def size(self) -> int:
        """Bytes there were when the directory was listed."""
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``. Raises ``OSError``."""
        end = min(offset + length, self._size)
        if offset < self._start or end > self._start + len(self._data):
            wanted = min(max(length, CHUNK), self._size - offset)
            self._data = self._directory.read(self._name, offset, wanted) if wanted > 0 else b""
            self._start = offset
        at = offset - self._start
        return self._data[at : at + max(end - offset, 0)]


def is_followed(name: str) -> bool:
    """Whether a file is a trace or a health file."""
    return name.endswith((SUFFIX, ".jsonl")) or bool(HEALTH.fullmatch(name))


def _info(name: str, entry: dict[str, Any]) -> FileInfo:
    modified = next((entry[k] for k in ("mtime", "LastModified", "created") if entry.get(k)), None)
    identity = str(entry.get("ino", ""))
    return FileInfo(name, int(entry.get("size") or 0), _seconds(modified), identity)


def _seconds(time: Any) -> float | None:
    if isinstance(time, datetime):
        return time.timestamp()
    return float(time) if isinstance(time, int | float) else None


def _protocols(system: Any) -> tuple[str, ...]:
    protocol = system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _words(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, ImportError):
        return f"expected the package of this kind of URL to be installed ({text[:200]})"
    if text.startswith("Protocol not known"):
        return "expected a kind of URL that fsspec knows, such as sftp:// or s3://"
    return f"{type(error).__name__}: {text.splitlines()[0][:200]}" if text else type(error).__name__
