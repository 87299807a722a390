"""Findings by their cause, most harmful first, as the findings page and the report list them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from engine.checks.finding import Effect, Finding, Verdict
from workbench.tokens import shorten
from workbench.verdict import EFFECTS, plural

NAMED = 3  # requests or ranks; more are counted


@dataclass(frozen=True)
class CauseGroup:
    """All findings of one cause, as the findings page lists them. ``findings`` is empty where a
    filter left consequences alone.
    """

    check: str
    name: str
    diagnosis: str
    verdict: Verdict
    effect: Effect
    findings: tuple[Finding, ...]
    consequences: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The first one in time."""
        return (self.findings or self.consequences)[0]

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps in which it was found."""
        shown = self.findings or self.consequences
        return tuple(sorted({f.step for f in shown if f.step is not None}))

    @property
    def title(self) -> str:
        """``width-mismatch · 41 steps · all requests · wrong text``."""
        return self.title_among(())

    def title_among(self, ranks: Sequence[int]) -> str:
        """The title; with the ranks it was found on where the recording has several."""
        shown = self.findings or self.consequences
        requests = {f.request for f in shown}
        parts = [self.diagnosis if self.findings else f"follows from {self.diagnosis}"]
        parts.append(plural(len(self.steps), "step"))
        parts.append("all requests" if None in requests else _named("request", requests))
        if len(ranks) > 1:
            found = {f.rank for f in shown}
            everywhere = found >= set(ranks)
            all_of = "both ranks" if len(ranks) == 2 else f"all {len(ranks)} ranks"
            parts.append(all_of if everywhere else _named("rank", found))
        return " · ".join([*parts, EFFECTS[self.effect]])


def _named(noun: str, values: Iterable[object]) -> str:
    """``request r0``, ``ranks 0, 2`` or ``17 requests``."""
    names = sorted(map(str, values), key=lambda name: (len(name), name))
    if len(names) > NAMED:
        return f"{len(names)} {noun}s"
    return f"{noun}{'s' * (len(names) > 1)} {', '.join(shorten(name, 24) for name in names)}"


def kept(groups: Sequence[CauseGroup], matches: Callable[[Finding], bool]) -> list[CauseGroup]:
    """The groups with those of their findings that match; groups without any are left out."""
    parts = (
        replace(
            group,
            findings=tuple(filter(matches, group.findings)),
            consequences=tuple(filter(matches, group.consequences)),
        )
        for group in groups
    )
    return [part for part in parts if part.findings or part.consequences]


HARM = (Effect.OUTPUT, Effect.CRASH, Effect.HANG, Effect.ACCEPTANCE, Effect.LATENT, Effect.NONE)
SEVERITY = (Verdict.FAULT, Verdict.LATENT, Verdict.NEAR_TIE, Verdict.SKIPPED)


def group_causes(findings: Sequence[Finding]) -> list[CauseGroup]:
    """Findings by check and diagnosis, most harmful first; consequences lie with their causes."""
    own: dict[Key, list[Finding]] = {}
    followers: dict[Key, list[Finding]] = {}
    latest = _Latest()
    for finding in findings:
        root = latest.root_of(finding)
        latest.add(finding)
        (own if root is finding else followers).setdefault(_key(root), []).append(finding)
    groups = [_group(members, followers.get(key, [])) for key, members in own.items()]
    order = {f.check: i for i, f in reversed(list(enumerate(findings)))}
    return sorted(
        groups,
        key=lambda g: (
            SEVERITY.index(g.verdict),
            HARM.index(g.effect),
            g.steps[:1],
            order[g.check],
        ),
    )


Key = tuple[str, str | None, Verdict]


def _key(finding: Finding) -> Key:
    return finding.check, finding.diagnosis, finding.verdict


class _Latest:
    """The last finding of each check, rank and request, so that a cause is found without a search."""

    def __init__(self) -> None:
        self._count = 0
        self._of_request: dict[tuple[str, int | None, str | None], tuple[int, Finding]] = {}
        self._of_any: dict[tuple[str, int | None], Finding] = {}

    def add(self, finding: Finding) -> None:
        """Findings come in order of time."""
        self._count += 1
        place = (finding.check, finding.rank, finding.request)
        self._of_request[place] = (self._count, finding)
        self._of_any[finding.check, finding.rank] = finding

    def root_of(self, finding: Finding) -> Finding:
        """The cause at the end of a chain of consequences, in this step or the latest before it; the
        finding itself where its cause is not among the findings.
        """
        root, seen = finding, {id(finding)}
        while root.consequence_of is not None:
            cause = self._cause(root.consequence_of, root.rank, finding.request)
            if cause is None or id(cause) in seen:
                return finding
            seen.add(id(cause))
            root = cause
        return root

    def _cause(self, check: str, rank: int | None, request: str | None) -> Finding | None:
        if request is None:
            return self._of_any.get((check, rank))
        found = (self._of_request.get((check, rank, rid)) for rid in (None, request))
        return max(filter(None, found), key=lambda pair: pair[0], default=(0, None))[1]


def _group(members: list[Finding], followers: list[Finding]) -> CauseGroup:
    first = members[0]
    return CauseGroup(
        first.check,
        first.name,
        first.diagnosis or first.name,
        first.verdict,
        first.effect,
        tuple(members),
        tuple(followers),
    )
