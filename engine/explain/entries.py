"""The two kinds of entries: an explanation, and a public report that it refers to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_GITHUB = re.compile(
    r"https://github\.com/(?P<repository>[^/]+/[^/]+)/(?:(?:issues|pull)/(?P<number>\d+)|commit/(?P<commit>[0-9a-f]+))"
)


class Kind(StrEnum):
    """What a key names."""

    CHECK = "check"
    DIAGNOSIS = "diagnosis"
    CLASS = "class"


class Grade(StrEnum):
    """How well a report's cause is known; the value is the catalogue's letter."""

    CONFIRMED = "A"  # by an author, a maintainer or the change itself
    CLAIMED = "B"  # or a symptom only
    REVIEW = "C"  # found in code, without a user's report

    @property
    def word(self) -> str:
        """``confirmed``, ``claimed`` or ``review``."""
        return self.name.lower()


@dataclass(frozen=True)
class Report:
    """One public report: an issue, a pull request, a commit or a review of one."""

    id: int
    links: tuple[str, ...]  # empty where no public address is known
    source: str  # repository and number, as in ``sgl-project/sglang#6309``
    title: str
    fault_class: str  # C1 … C16, of the cause
    grade: Grade
    checks: tuple[str, ...]
    diagnoses: tuple[str, ...]
    fix: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; ``class`` and ``grade`` as the catalogue writes them."""
        return {
            "id": self.id,
            "source": self.source,
            "links": list(self.links),
            "title": self.title,
            "class": self.fault_class,
            "grade": self.grade.value,
            "checks": list(self.checks),
            "diagnoses": list(self.diagnoses),
            "fix": self.fix,
        }


@dataclass(frozen=True)
class Explanation:
    """What a key means, in four parts, each one paragraph; backticks enclose code, ``[37]`` is report 37."""

    key: str  # I8, bit-order, C4
    kind: Kind
    name: str  # of the check or class; a diagnosis' own key
    title: str
    checks: tuple[str, ...]  # that find it; a check's own id
    diagnoses: tuple[str, ...]  # of a check, the last one is its general form
    meaning: str
    symptom: str
    confirm: str
    fixed: str
    reports: tuple[Report, ...]

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The four parts with their headings, in the order in which they are read."""
        return (
            ("What it means", self.meaning),
            ("How it shows", self.symptom),
            ("How to confirm", self.confirm),
            ("How it was fixed", self.fixed),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "key": self.key,
            "kind": self.kind.value,
            "name": self.name,
            "title": self.title,
            "checks": list(self.checks),
            "diagnoses": list(self.diagnoses),
            "meaning": self.meaning,
            "symptom": self.symptom,
            "confirm": self.confirm,
            "fixed": self.fixed,
            "reports": [report.to_json() for report in self.reports],
        }


def link_name(link: str) -> str:
    """``https://github.com/a/b/issues/7`` as ``a/b#7``, a commit as ``a/b@1234567``."""
    match = _GITHUB.fullmatch(link)
    if match is None:
        return link.removeprefix("https://")
    number, commit = match["number"], match["commit"]
    return f"{match['repository']}#{number}" if number else f"{match['repository']}@{commit[:9]}"
