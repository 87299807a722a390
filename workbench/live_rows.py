"""A live state as the tables and sentences of the page: pure functions."""

from __future__ import annotations

from typing import Any

from engine.checks.finding import Finding, Verdict
from engine.live.state import SYMBOLS, LiveState, RankRow
from workbench.outcome import Outcome, mark
from workbench.tokens import legible, shorten
from workbench.verdict import EFFECTS, Headline, Level, cause_words, plural, sentence

SIGNS = {
    Verdict.FAULT: mark(Outcome.FAULT).glyph,
    Verdict.LATENT: "△",
    Verdict.NEAR_TIE: "≈",
}
LONGEST = 300  # characters of a foreign text


def headline_of(state: LiveState) -> Headline:
    """The verdict line: what is wrong first, how much of it behind."""
    if state.problem is not None:
        return Headline(Level.LATENT, state.problem)
    if not state.steps:
        return Headline(
            Level.EMPTY, "no steps yet: traces appear here as soon as a server writes them"
        )
    read = f"{plural(state.steps, 'step')} of {_ranks(state)}"
    more = " so far; more is being read" if state.behind else ""
    faults = [cause for cause in state.causes if cause.verdict is Verdict.FAULT]
    latent = [cause for cause in state.causes if cause.verdict is Verdict.LATENT]
    if not faults and not latent:
        return Headline(Level.CLEAN, f"{read}, nothing wrong{more}")
    first = (faults or latent)[0].first
    if not faults:
        detail = f"{read}, nothing wrong yet{more}"
        return Headline(Level.LATENT, sentence(first), detail, cause_words(first), first)
    faulty = sum(row.faults for row in state.ranks)
    parts = [f"effect: {EFFECTS[first.effect]}", f"{faulty:,} of {read} at fault{more}"]
    if len(faults) > 1:
        parts.append(plural(len(faults) - 1, "other cause"))
    return Headline(Level.FAULT, sentence(first), " · ".join(parts), cause_words(first), first)


def _ranks(state: LiveState) -> str:
    """``2 ranks``; recordings that are not one a rank are counted too."""
    read = [row for row in state.ranks if row.steps > 0]
    ranks = {(row.group, row.rank) for row in read}
    named = plural(len(ranks), "rank")
    return named if len(ranks) == len(read) else f"{named} in {plural(len(read), 'recording')}"


def rank_table(rows: tuple[RankRow, ...]) -> list[dict[str, Any]]:
    """One row a rank, as the page's table shows it."""
    return [
        {
            "rank": "?" if row.rank is None else f"{_foreign(row.group)} {row.rank}".strip(),
            "state": f"{SYMBOLS[row.state]} {row.state}",
            "steps": row.steps,
            "last step": row.last_step,
            "steps/s": row.steps_a_second,
            "accepted": row.acceptance,
            "faulty": row.faults,
            "written": row.written,
            "dropped": row.dropped,
            "hooks": row.hooks,
            "last step ago": None if row.age is None else round(row.age),
            "notes": notes_of(row),
            "file": _foreign(row.name),
        }
        for row in rows
    ]


def notes_of(row: RankRow) -> str:
    """What is missing or wrong."""
    parts = [row.stopped] if row.stopped else []
    parts += [f"missing: {', '.join(row.missing)}"] if row.missing else []
    parts += [f"last error: {row.last_error}"] if row.last_error else []
    parts += [row.problem] if row.problem else []
    return _foreign("; ".join(parts))


def finding_table(findings: list[Finding]) -> list[dict[str, Any]]:
    """One row a finding, in the order given."""
    return [
        {
            "verdict": f"{SIGNS.get(finding.verdict, '')} {finding.verdict}".strip(),
            "step": finding.step,
            "rank": finding.rank,
            "check": f"{finding.check} {finding.name}",
            "finding": _foreign(sentence(finding).replace("`", "")),
        }
        for finding in findings
    ]


def cause_table(state: LiveState) -> list[dict[str, Any]]:
    """One row a diagnosis."""
    return [
        {
            "verdict": f"{SIGNS.get(cause.verdict, '')} {cause.verdict}".strip(),
            "check": f"{cause.check} {cause.first.name}",
            "diagnosis": cause.diagnosis,
            "findings": cause.count,
            "first step": cause.first.step,
            "last step": cause.last.step,
            "first": _foreign(cause.first.message.replace("`", "")),
        }
        for cause in state.causes
    ]


def _foreign(text: str) -> str:
    return legible(shorten(text, LONGEST))
