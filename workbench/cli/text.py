"""A report in words: the verdict first, then one block a cause."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.checks.finding import Finding
    from engine.checks.registry import Report

Group = tuple[str, str | None]  # check, diagnosis


def report_lines(name: str, report: Report) -> list[str]:
    """Lines for one recording; control characters of foreign texts are escaped."""
    causes = grouped(f for f in report.findings if f.consequence_of is None)
    lines = [f"{name}: {_verdict(report)}"]
    for findings in causes.values():
        lines += ["", *_block(findings)]
        lines += [f"    {line}" for line in _consequences(findings, report.findings)]
    return list(map(printable, lines))


def printable(text: str) -> str:
    """The same with control characters escaped: a terminal obeys them."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def json_line(value: Any) -> str:
    """JSON on one line, as readable as :func:`printable` and read back the same."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def grouped(findings: Iterable[Finding]) -> dict[Group, list[Finding]]:
    """Findings by check and diagnosis, in the order of their first."""
    groups: dict[Group, list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.check, finding.diagnosis), []).append(finding)
    return groups


def _verdict(report: Report) -> str:
    causes = len(grouped(report.causes))
    steps = _counted(report.steps, "step")
    checks = _counted(len(report.checks), "check")
    text = (
        f"{_counted(causes, 'cause')} in {steps}" if causes else f"{steps}, {checks}, nothing wrong"
    )
    others = [f for f in report.findings if f.verdict.value in ("latent", "near-tie")]
    for verdict in ("latent", "near-tie"):
        count = sum(f.verdict.value == verdict for f in others)
        text += f"; {count} {verdict}" if count else ""
    if report.skipped:
        names = ", ".join(f.name for f in report.skipped)
        text += f"; {_counted(len(report.skipped), 'check')} lacked inputs ({names})"
    return text


def _block(findings: Sequence[Finding]) -> list[str]:
    first = findings[0]
    head = f"{first.check} {first.name} · {first.diagnosis or first.verdict} · {first.verdict}"
    lines = [f"  {head} · {_extent(findings)}", f"    {first.message}"]
    lines += [f"    hint: {first.hint}"] if first.hint else []
    return [*lines, f"    effect: {first.effect}"]


def _consequences(findings: Sequence[Finding], everything: Sequence[Finding]) -> list[str]:
    """What follows from a group of findings in the same steps, ranks and requests, one level deeper
    each.
    """
    check = findings[0].check
    places = {(f.step, f.rank, f.request) for f in findings}
    following = [
        f
        for f in everything
        if f.consequence_of == check
        and places & {(f.step, f.rank, f.request), (f.step, f.rank, None)}
    ]
    lines = []
    for (name, diagnosis), items in grouped(following).items():
        lines.append(f"so also {name} {items[0].name} · {diagnosis or 'fault'} · {_extent(items)}")
        lines += [f"  {line}" for line in _consequences(items, everything)]
    return lines


def _extent(findings: Sequence[Finding]) -> str:
    steps = sorted({f.step for f in findings if f.step is not None})
    where = (
        f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} … {steps[-1]} ({len(steps)})"
    )
    return f"{where}, {_counted(len(findings), 'finding')}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
