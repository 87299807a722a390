"""Whose file it is, from its name alone: group of ranks, start of the server, rank, part.

``dp0/again1/rank3.00002.ddtree.arrow`` is part 2 of rank 3 of group ``dp0``, recorded after the server's second start.
A file of any other name is a recording of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

START = re.compile(r"again(\d{1,4})")
PART = re.compile(r"(.+?)(?:\.(\d{5}))?(?:\.ddtree\.arrow|\.jsonl)")
HEALTH = re.compile(r"health[-.](?:(?:(.+)-)?rank)?(\d{1,6})\.json")


@dataclass(frozen=True)
class TraceName:
    """What the name of a trace tells. Parts of one ``series`` follow each other."""

    group: str
    start: int  # 0: the first one
    series: str
    part: int


def trace_name(name: str) -> TraceName:
    """Of a path inside the directory."""
    folders, _, file = name.rpartition("/")
    group, start = "", 0
    for folder in folders.split("/"):
        found = START.fullmatch(folder)
        start, group = (int(found[1]), group) if found else (start, folder)
    match = PART.fullmatch(file)
    stem, part = (match[1], int(match[2] or 0)) if match else (file, 0)
    numbered = match is not None and match[2] is not None
    return TraceName(group, start, f"{folders}/{stem}" if numbered else name, part)


def health_of(name: str) -> tuple[str, int] | None:
    """Group and rank of a health file; None where its name tells none."""
    match = HEALTH.fullmatch(name.rpartition("/")[2])
    return (match[1] or "", int(match[2])) if match else None
