"""The zip around what is handed on, read as if a stranger had made it and written so that nobody
sees half of one.

Covered: names, duplicates, sizes before inflating, ratio, encryption, damage. Not covered: what the
members say (``engine.trace.snapshot``). Nothing is ever extracted under a name that the archive
chose.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.trace import limits
from engine.trace.errors import FieldProblem, describe

MANIFEST, STEPS, FINDINGS = "manifest.json", "steps.ddtree.arrow", "findings.json"
REPORT, REPRODUCTION = "report.html", "test_repro.py"
MEMBERS = (MANIFEST, STEPS, FINDINGS, REPORT, REPRODUCTION)
REQUIRED = (MANIFEST, STEPS, FINDINGS)
EPOCH = (1980, 1, 1, 0, 0, 0)  # equal content gives equal bytes
END_RECORD, DIRECTORY_LIMIT = 22, 1 << 14  # bytes
ENCRYPTED = 0x1
SMALL = 1 << 20  # bytes below which no ratio is suspicious


@dataclass(frozen=True)
class Contents:
    """What an archive of one kind may hold."""

    kind: str  # for messages
    expected: str  # names, for messages
    known: Callable[[str], bool]
    required: tuple[str, ...]
    most_bytes: int  # of all members, inflated


SNAPSHOT = Contents(
    *("a snapshot", ", ".join(MEMBERS), MEMBERS.__contains__, REQUIRED),
    most_bytes=len(MEMBERS) * limits.MAX_MEMBER_BYTES,
)


def pack(members: Mapping[str, bytes]) -> bytes:
    """A zip of members, in the order given."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return sink.getvalue()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that exists either whole or not at all."""
    try:
        _write_beside(path, data)
    except OSError as error:  # names the file that was asked for, not the one beside it
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write_beside(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def require_regular(path: Path) -> None:
    """Refuse a pipe or a device: opening one may wait for ever, and it cannot be read twice."""
    if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
        found = "a pipe or a device; save what it gives to a file first"
        raise FieldProblem("a file", found).at(str(path), None)


def unpack(path: Path, contents: Contents = SNAPSHOT) -> dict[str, bytes]:
    """Members of an archive by name. Raises ``TraceFormatError``, ``OSError`` where the file cannot
    be opened.
    """
    require_regular(path)
    with open(path, "rb") as file:
        data = file.read(limits.MAX_SNAPSHOT_BYTES + 1)
    try:
        _check_end(data, contents)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            _check_names([info.filename for info in infos], contents)
            _check_sizes(infos, contents)
            return {info.filename: _member(archive, info) for info in infos}
    except FieldProblem as problem:
        raise problem.at(str(path), None) from None
    except (
        *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError),
        *(RuntimeError, OSError, ValueError, OverflowError),
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:100]
        raise FieldProblem(contents.kind, f"a damaged archive: {reason}").at(
            str(path), None
        ) from None


def _check_end(data: bytes, contents: Contents) -> None:
    """Bound the directory before ``zipfile`` turns all of it into objects."""
    if len(data) > limits.MAX_SNAPSHOT_BYTES:
        raise FieldProblem(f"at most {limits.MAX_SNAPSHOT_BYTES} bytes", "more")
    end = data[-END_RECORD:]
    if len(end) < END_RECORD or not end.startswith(b"PK\x05\x06"):
        raise FieldProblem(contents.kind, "no zip directory at the end of the file")
    (size,) = struct.unpack_from("<I", end, 12)
    if size > DIRECTORY_LIMIT or data[-END_RECORD - 20 :].startswith(b"PK\x06\x07"):
        raise FieldProblem(f"a directory of at most {DIRECTORY_LIMIT} bytes", "a larger one")


def _check_names(names: list[str], contents: Contents) -> None:
    for name in names:
        if not contents.known(name):
            raise FieldProblem(f"members {contents.expected}", describe(name))
        if names.count(name) > 1:
            raise FieldProblem("each member once", "it twice", name)
    for name in contents.required:
        if name not in names:
            raise FieldProblem("a member", "none", name)


def _check_sizes(infos: list[zipfile.ZipInfo], contents: Contents) -> None:
    for info in infos:
        _check_member(info)
    total = sum(info.file_size for info in infos)
    if total > contents.most_bytes:
        raise FieldProblem(f"at most {contents.most_bytes} bytes inflated", str(total))


def _check_member(info: zipfile.ZipInfo) -> None:
    name, claimed = info.filename, info.file_size
    if info.flag_bits & ENCRYPTED:
        raise FieldProblem("a readable member", "an encrypted one", name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FieldProblem("a stored or deflated member", f"method {info.compress_type}", name)
    if claimed > limits.MAX_MEMBER_BYTES:
        raise FieldProblem(f"at most {limits.MAX_MEMBER_BYTES} bytes inflated", str(claimed), name)
    if claimed > max(SMALL, limits.MAX_RATIO * info.compress_size):
        found = f"{info.compress_size} bytes that inflate to {claimed}"
        raise FieldProblem(f"at most {limits.MAX_RATIO}-fold compression", found, name)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    claimed = info.file_size
    with archive.open(info) as member:
        data = member.read(claimed + 1)
    if len(data) != claimed:
        raise FieldProblem(f"{claimed} bytes", str(len(data)), info.filename)
    return data
