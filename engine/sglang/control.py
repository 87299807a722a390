"""Control: what is recorded, as ``control.json`` in the trace directory says; an absent file means everything.

{"record": true, "first": 1000, "every": 10, "only_failures": false, "keep_before_failure": 8}
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

FILE = "control.json"
MAX_BYTES = 1 << 16
MAX_KEPT = 64  # steps held back for a failure


class ControlError(ValueError):
    """The file is not as it should be; the text says where."""


@dataclass(frozen=True)
class Control:
    """Numbers count verifications of this process from 0."""

    record: bool = True
    first: int | None = None  # record only the first so many
    every: int = 1  # then only each so manyth
    alternate: int = 0  # record so many, rest for as many, stay away for as many, to see what it costs; 0: record all
    check: bool = False  # run the checks as steps are written, and count what they find
    only_failures: bool = False  # write a step only if a check finds a fault in it
    fingerprints: bool = False  # of KV rows, in every layer, around the move
    keep_before_failure: int = 0  # steps before a failure that are written too

    @property
    def checks(self) -> bool:
        """Whether steps are checked as they come."""
        return self.check or self.only_failures

    def wants(self, number: int) -> bool:
        """Whether a verification is recorded."""
        within = self.first is None or number < self.first
        return self.record and within and self._turn(number) == 0 and number % self.every == 0

    def away(self, number: int) -> bool:
        """Whether a verification passes without hooks."""
        return self._turn(number) == 2

    def _turn(self, number: int) -> int:
        return number // self.alternate % 3 if self.alternate else 0


def read_control(folder: Path) -> Control:
    """The file's settings. Raises :class:`ControlError`."""
    path = folder / FILE
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Control()
    except OSError as error:
        raise ControlError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ControlError(f"{path}: expected at most {MAX_BYTES} bytes, found more")
    try:
        return control_from(json.loads(data), str(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ControlError):
            raise
        raise ControlError(f"{path}: expected JSON, found {str(error)[:80]}") from None


def control_from(found: Any, place: str) -> Control:
    """Settings from plain JSON values. Raises :class:`ControlError`."""
    if type(found) is not dict:
        raise ControlError(f"{place}: expected an object, found {type(found).__name__}")
    known = {field.name: field.default for field in fields(Control)}
    for name, value in found.items():
        if name not in known:
            raise ControlError(f"{place}: expected one of {', '.join(known)}, found {name[:40]!r}")
        _accept(name, value, known[name], place)
    return Control(**found)


def _accept(name: str, value: Any, default: Any, place: str) -> None:
    if isinstance(default, bool):
        if type(value) is not bool:
            raise ControlError(f"{place}: {name}: expected true or false, found {value!r:.40}")
        return
    if name == "first" and value is None:
        return
    low, high = {"every": (1, 1 << 40), "keep_before_failure": (0, MAX_KEPT)}.get(
        name, (0, 1 << 40)
    )
    if type(value) is not int or not low <= value <= high:
        raise ControlError(f"{place}: {name}: expected {low} … {high}, found {value!r:.40}")
