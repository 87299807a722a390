"""Sink: the files of one rank, in parts of bounded size; the oldest part goes when all together grow beyond a limit.

JSON lines need numpy alone. Arrow files are smaller and faster to write and need pyarrow, which an SGLang
installation usually has through its dependencies; which of them it is is asked for by name and stands in the health
file.
"""

from __future__ import annotations

import importlib.util
import os
from enum import Enum
from pathlib import Path
from typing import Any

from engine.step import VerifyStep
from engine.trace.header import TraceHeader, header_to_text
from engine.trace.json_codec import dumps

PART_BYTES = 256 << 20
TOTAL_BYTES = 8 << 30


class Format(Enum):
    """How a part is written."""

    JSONL = "jsonl"
    ARROW = "arrow"


def chosen_format(name: str) -> Format:
    """``auto`` is Arrow where pyarrow is installed. Raises ``ValueError`` for another name."""
    if name == "auto":
        found = importlib.util.find_spec("pyarrow") is not None
        return Format.ARROW if found else Format.JSONL
    return Format(name)


class JsonLines:
    """A part as JSON lines, its header beside it; each line is one write."""

    def __init__(self, path: Path, header: TraceHeader) -> None:
        self.path = path
        beside = path.with_name(path.name.removesuffix(".jsonl") + ".header.json")
        beside.write_text(header_to_text(header) + "\n", encoding="utf-8")
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115

    def write(self, step: VerifyStep) -> None:
        """Append a step, all of it or nothing. Raises ``OSError``."""
        start, rest = self._file.tell(), memoryview((dumps(step) + "\n").encode())
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(start)
            self._file.seek(start)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def free_place(folder: Path, name: str) -> Path:
    """The folder itself, or the first of ``again1``, … in it that holds nothing of this rank.

    A server that starts again counts its steps from 0: in one folder they could not be told from the earlier ones.
    """
    place, number = folder, 0
    while any(place.glob(f"{name}.*")):
        number += 1
        place = folder / f"again{number}"
    return place


class Sink:
    """Parts ``NAME.00000.jsonl``, … (or ``.ddtree.arrow``) in a folder that has none of that name."""

    def __init__(
        self,
        folder: Path,
        name: str,
        header: TraceHeader,
        form: Format,
        part_bytes: int = PART_BYTES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        self.removed = 0  # parts
        self._folder, self._name, self._header, self._form = folder, name, header, form
        self._part_bytes, self._total_bytes = part_bytes, total_bytes
        self._number = 0
        self._parts: list[Path] = []
        self._writer: Any = None

    @property
    def path(self) -> Path | None:
        """The part that is being written."""
        return self._parts[-1] if self._parts else None

    def write(self, step: VerifyStep) -> None:
        """Append a step. Raises ``OSError`` and ``TraceFormatError``; complete steps stay readable."""
        if self._writer is None or os.stat(self._parts[-1]).st_size >= self._part_bytes:
            self._open()
        self._writer.write(step)

    def close(self) -> None:
        """Close the part."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> None:
        self.close()
        self._make_room()
        suffix = "jsonl" if self._form is Format.JSONL else "ddtree.arrow"
        path = self._folder / f"{self._name}.{self._number:05d}.{suffix}"
        self._writer = self._new(path)
        self._parts.append(path)
        self._number += 1

    def _new(self, path: Path) -> Any:
        if self._form is Format.JSONL:
            return JsonLines(path, self._header)
        from engine.trace.writer import TraceWriter

        return TraceWriter(path, self._header)

    def _make_room(self) -> None:
        """Remove the oldest parts of this process until a further one fits."""
        sizes = [os.stat(part).st_size for part in self._parts]
        while self._parts and sum(sizes) + self._part_bytes > self._total_bytes:
            sizes.pop(0)
            part = self._parts.pop(0)
            part.unlink(missing_ok=True)
            header = part.name.removesuffix(".jsonl") + ".header.json"
            part.with_name(header).unlink(missing_ok=True)
            self.removed += 1
