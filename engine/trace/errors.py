"""What is said about an input that cannot be read: one line that names file, line, field, expected
and found.
"""

from __future__ import annotations

from typing import Any

SHOWN = 60  # characters of a foreign value that a message repeats


class TraceFormatError(ValueError):
    """An input is not what it claims to be.

    Attributes: ``file`` (as given), ``line`` (JSON lines: from 1; Arrow: record number from 1;
    None: the whole file), ``field`` (dotted path, empty: the whole record).
    """

    def __init__(self, message: str, file: str = "", line: int | None = None, field: str = ""):
        self.file, self.line, self.field = file, line, field
        place = file if line is None else f"{file or 'line'}:{line}"
        text = ": ".join(part for part in (place, field, message) if part)
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text))


class FieldProblem(Exception):
    """A value that does not fit, on its way up to the record that holds it; never leaves
    ``engine.trace``.
    """

    def __init__(self, expected: str, found: str, field: str = ""):
        super().__init__(expected, found, field)
        self.expected, self.found, self.field = expected, found, field

    def inside(self, name: str) -> FieldProblem:
        """The same problem seen from one level further out."""
        joint = "" if not self.field or self.field.startswith("[") else "."
        self.field = f"{name}{joint}{self.field}"
        return self

    def at(self, file: str, line: int | None) -> TraceFormatError:
        """The same problem as the error that callers see."""
        message = f"expected {self.expected}, found {self.found}"
        return TraceFormatError(message, file, line, self.field)


def describe(value: Any) -> str:
    """A foreign value in a few words, on one line."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def split_where(where: str) -> tuple[str, int | None]:
    """``"file:line"`` as its two parts; a text without a line number is a file."""
    file, colon, line = where.rpartition(":")
    return (file, int(line)) if colon and line.isdecimal() and line.isascii() else (where, None)
