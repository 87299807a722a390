"""Findings by their cause, most harmful first, as the findings page and the report list them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.checks.finding import Effect, Finding, Verdict
from workbench.verdict import EFFECTS, plural


@dataclass(frozen=True)
class CauseGroup:
    """All findings of one cause, as the findings page lists them."""

    check: str
    name: str
    diagnosis: str
    verdict: Verdict
    effect: Effect
    findings: tuple[Finding, ...]
    consequences: tuple[Finding, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps in which it was found."""
        return tuple(sorted({f.step for f in self.findings if f.step is not None}))

    @property
    def title(self) -> str:
        """``width-mismatch · 41 steps · all requests · wrong text``."""
        requests = {f.request for f in self.findings}
        if None in requests:
            who = "all requests"
        else:
            who = ", ".join(sorted(map(str, requests))[:3]) + (" …" if len(requests) > 3 else "")
            who = f"request {who}" if len(requests) == 1 else f"requests {who}"
        parts = [self.diagnosis, plural(len(self.steps), "step"), who, EFFECTS[self.effect]]
        return " · ".join(parts)


HARM = (Effect.OUTPUT, Effect.CRASH, Effect.HANG, Effect.ACCEPTANCE, Effect.LATENT, Effect.NONE)
SEVERITY = (Verdict.FAULT, Verdict.LATENT, Verdict.NEAR_TIE, Verdict.SKIPPED)


def group_causes(findings: Sequence[Finding]) -> list[CauseGroup]:
    """Findings by check and diagnosis, most harmful first; consequences lie with their causes."""
    own: dict[Key, list[Finding]] = {}
    followers: dict[Key, list[Finding]] = {}
    earlier: dict[tuple[str, int | None], list[Finding]] = {}
    for finding in findings:
        root = _root(finding, earlier)
        earlier.setdefault((finding.check, finding.rank), []).append(finding)
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


def _root(finding: Finding, earlier: dict[tuple[str, int | None], list[Finding]]) -> Finding:
    """The cause at the end of a chain of consequences, in this step or the latest before it; the
    finding itself where its cause is not among the findings.
    """
    root = finding
    while root.consequence_of is not None:
        before = earlier.get((root.consequence_of, root.rank), [])
        fitting = (f for f in reversed(before) if f.request in (None, finding.request))
        cause = next(fitting, None) if finding.request is not None else (before[-1:] or [None])[0]
        if cause is None or cause is root:
            return finding
        root = cause
    return root


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
