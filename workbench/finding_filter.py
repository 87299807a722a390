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
LISTS = {  # parameters with several values: what one of them is
    "checks": "check",
    "diagnoses": "diagnosis",
    "effects": "effect",
    "requests": "request",
    "ranks": "rank",
}
NAMED = 3  # of what is not known
MOST_VALUES = 500  # of one parameter
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
    """The filter that the URL states, and what of it makes no sense, one sentence a parameter or nothing."""
    steps, problem = parse_steps(texts.get("steps") or "")
    problems = [problem]
    verdict = texts.get("show") or EVERYTHING
    if verdict not in VERDICTS:
        expected = f"{', '.join(VERDICTS[:-1])} or {VERDICTS[-1]}"
        problems.append(f"show: expected {expected}, found {verdict[:40]!r}; it is ignored")
    lists = {name: split(texts.get(name)) for name in LISTS}
    lists["words"] = tuple(dict.fromkeys((texts.get("words") or "").lower().split()))
    for name, values in lists.items():
        problems.append(_too_many(name, len(values)))
        lists[name] = values[:MOST_VALUES]
    found = FindingFilter(
        verdict if verdict in VERDICTS else EVERYTHING,
        *(lists[name] for name in LISTS),
        steps,
        lists["words"],
    )
    return found, " · ".join(filter(None, problems))


def _too_many(name: str, count: int) -> str:
    if count <= MOST_VALUES:
        return ""
    return (
        f"{name}: expected at most {MOST_VALUES}, found {count:,}; the first {MOST_VALUES} are used"
    )


def strangers(wanted: FindingFilter, known: Mapping[str, Collection[str]]) -> str:
    """What a filter asks for and a recording does not hold, as one sentence or nothing. ``known``: what it holds."""
    missing = [
        f"{noun} {value[:40]!r}"
        for name, noun in LISTS.items()
        for value in getattr(wanted, name)
        if value not in known[name]
    ]
    more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
    return f"nothing here has {', '.join(missing[:NAMED])}{more}" if missing else ""


def parse_steps(text: str) -> tuple[tuple[tuple[int, int], ...], str]:
    """``"3, 5-9"`` as first and last steps, and what could not be understood."""
    ranges: dict[tuple[int, int], None] = {}
    wrong: list[str] = []
    for part in filter(str.strip, text.split(",")):
        found = RANGE.fullmatch(part)
        if found is None:
            wrong.append(part.strip())
            continue
        first, last = int(found[1]), int(found[2] or found[1])
        ranges[min(first, last), max(first, last)] = None
    problem = _too_many("steps", len(ranges))
    if wrong:
        others = f" and {len(wrong) - 1:,} more; they are" if len(wrong) > 1 else "; it is"
        problem = f"steps: expected numbers as 3, 5-9, found {wrong[0][:40]!r}{others} ignored"
    return tuple(ranges)[:MOST_VALUES], problem


def split(text: str | None) -> tuple[str, ...]:
    """Values of one parameter of the URL, each once; the way back of :func:`join`."""
    parts = (part.replace("%2C", ",").replace("%25", "%") for part in (text or "").split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def join(values: Sequence[str]) -> str | None:
    """Values as one parameter, commas inside them escaped; None for no value."""
    return ",".join(v.replace("%", "%25").replace(",", "%2C") for v in values) or None
