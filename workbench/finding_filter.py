"""Which findings are shown: by check, diagnosis, effect, verdict, request, rank, steps and words.

Covered: the filter as a value, to and from the texts that the URL holds, and whether a finding matches. A finding of
the whole step matches each request that the step held. Not covered: widgets
(:mod:`workbench.panes.filter_bar`), and grouping (:mod:`workbench.causes`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from engine.checks.finding import Finding, Verdict

EVERYTHING = "everything"
VERDICTS = (EVERYTHING, *(str(v) for v in Verdict if v is not Verdict.SKIPPED))
RANGE = re.compile(r"\s*(\d{1,15})\s*(?:-\s*(\d{1,15}))?\s*", re.ASCII)


@dataclass(frozen=True)
class FindingFilter:
    """What a finding must be; an empty part asks for nothing."""

    verdict: str = EVERYTHING
    checks: tuple[str, ...] = ()
    diagnoses: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()  # first and last
    words: tuple[str, ...] = ()  # in lower case; all of them must occur

    @property
    def is_empty(self) -> bool:
        """Whether every finding matches."""
        return self == FindingFilter()

    def matches(self, finding: Finding, live: Collection[str]) -> bool:
        """``live``: the requests of the finding's step."""
        return (
            self.verdict in (EVERYTHING, finding.verdict)
            and _among(finding.check, self.checks)
            and _among(diagnosis_of(finding), self.diagnoses)
            and _among(finding.effect, self.effects)
            and _among(str(finding.rank), self.ranks)
            and self._has_request(finding, live)
            and self._has_step(finding.step)
            and self._has_words(finding)
        )

    def _has_request(self, finding: Finding, live: Collection[str]) -> bool:
        if not self.requests:
            return True
        about = live if finding.request is None else (finding.request,)
        return any(rid in self.requests for rid in about)

    def _has_step(self, step: int | None) -> bool:
        if not self.steps:
            return True
        return step is not None and any(first <= step <= last for first, last in self.steps)

    def _has_words(self, finding: Finding) -> bool:
        if not self.words:
            return True
        parts = (finding.check, finding.name, diagnosis_of(finding), finding.request)
        text = " ".join(filter(None, (*parts, finding.message, finding.hint))).lower()
        return all(word in text for word in self.words)


def _among(value: str, wanted: Sequence[str]) -> bool:
    return not wanted or value in wanted


def diagnosis_of(finding: Finding) -> str:
    """Its diagnosis; where a check gave none, the check's name, as the groups are called."""
    return finding.diagnosis or finding.name


def parse(texts: Mapping[str, str | None]) -> tuple[FindingFilter, str]:
    """The filter that the URL states, and what of it makes no sense, as one sentence or nothing."""
    steps, problem = parse_steps(texts.get("steps") or "")
    verdict = texts.get("show") or EVERYTHING
    found = FindingFilter(
        verdict if verdict in VERDICTS else EVERYTHING,
        *(split(texts.get(name)) for name in ("checks", "diagnoses", "effects")),
        *(split(texts.get(name)) for name in ("requests", "ranks")),
        steps,
        tuple((texts.get("words") or "").lower().split()),
    )
    return found, problem


def parse_steps(text: str) -> tuple[tuple[tuple[int, int], ...], str]:
    """``"3, 5-9"`` as first and last steps, and what could not be understood."""
    ranges, problem = [], ""
    for part in filter(str.strip, text.split(",")):
        found = RANGE.fullmatch(part)
        if found is None:
            problem = (
                f"steps: expected numbers as 3, 5-9, found {part.strip()[:40]!r}; it is ignored"
            )
            continue
        first, last = int(found[1]), int(found[2] or found[1])
        ranges.append((min(first, last), max(first, last)))
    return tuple(ranges), problem


def split(text: str | None) -> tuple[str, ...]:
    """Values of one parameter of the URL; the way back of :func:`join`."""
    parts = (part.replace("%2C", ",").replace("%25", "%") for part in (text or "").split(","))
    return tuple(part for part in parts if part)


def join(values: Sequence[str]) -> str | None:
    """Values as one parameter, commas inside them escaped; None for no value."""
    return ",".join(v.replace("%", "%25").replace(",", "%2C") for v in values) or None
