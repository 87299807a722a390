"""What is typed into the form of an experiment, as values; whatever makes no sense is one sentence."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
NO_CAP = ("all", "none", "no cap", "0")
LONGEST = 40_000  # characters of one list


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """``7, 16``. Raises ``ValueError``."""
    return _each(name, "whole numbers such as 7, 16", text, _whole)


def caps(name: str, text: str) -> tuple[int | None, ...]:
    """``1, 4, all``: ``all`` is no cap. Raises ``ValueError``."""
    expected = "whole numbers such as 1, 4, or all for no cap"
    return _each(name, expected, text, lambda word: None if word in NO_CAP else _whole(word))


def numbers(name: str, text: str) -> tuple[float, ...]:
    """``0, 0.8``. Raises ``ValueError``."""
    return _each(name, "numbers such as 0, 0.8", text, _number)


def command(name: str, text: str) -> tuple[str, ...]:
    """Words of a command line, as a shell splits them. Raises ``ValueError``."""
    try:
        return tuple(shlex.split(text.replace("\\\n", " ")))
    except ValueError as error:
        raise ValueError(f"{name}: expected the words of a command line, found {error}") from None


def environment(text: str) -> tuple[tuple[str, str], ...]:
    """A line ``NAME=value`` each. Raises ``ValueError``."""
    found = []
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = line.strip().partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"environment: expected lines NAME=value, found {line.strip()[:40]!r}")
        found.append((name, value))
    return tuple(found)


def listed(values: Iterable[object]) -> str:
    """Values as they are typed."""
    return ", ".join("all" if v is None else f"{v:g}" for v in values)  # type: ignore[str-format]


def _each(name: str, expected: str, text: str, read: Callable[[str], T]) -> tuple[T, ...]:
    if len(text) > LONGEST:
        raise ValueError(f"{name}: expected at most {LONGEST:,} characters, found {len(text):,}")
    words = [word.strip() for word in text.split(",")]
    if text.strip() == "":
        raise ValueError(f"{name}: expected {expected}, found nothing")
    found = []
    for word in words:
        try:
            found.append(read(word))
        except ValueError:
            raise ValueError(f"{name}: expected {expected}, found {word[:40]!r}") from None
    return tuple(found)


def _whole(word: str) -> int:
    if len(word) > 15:
        raise ValueError(word)
    return int(word)


def _number(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(word)
    return value
