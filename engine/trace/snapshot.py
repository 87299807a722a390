"""Snapshots: some steps of a recording, what the checks say and a test that reproduces it, in one
zip.

Left out unless asked for: token texts, prompts, what plain decoding wrote, the command and notes
(which may hold a prompt). Token ids stay. The step before each chosen one (same rank) goes in as
context, because stale state shows only across two; where ranks disagree, the same step of every
rank does.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.checks.finding import Finding, Verdict
from engine.step import Extras, VerifyStep
from engine.trace import archive
from engine.trace.arrow_file import ArrowFile, MemoryBytes
from engine.trace.errors import FieldProblem
from engine.trace.findings_json import findings_from_text, findings_to_text
from engine.trace.limits import MAX_MEMBER_BYTES
from engine.trace.manifest import new_manifest, utf8, verified_manifest
from engine.trace.reader import Trace
from engine.trace.reproduction import REPRODUCTION_TEST
from engine.trace.writer import TraceWriter

RANKS_DISAGREE = "I19"

ReportBuilder = Callable[[Trace, Sequence[int], Sequence[Finding]], str]  # positions of that trace


@dataclass(frozen=True)
class SnapshotSummary:
    """What a snapshot holds. Positions are those of the recording that it was taken from."""

    chosen: tuple[int, ...]
    context: tuple[int, ...]
    findings: int  # without the checks that were skipped
    included: tuple[str, ...]
    left_out: tuple[str, ...]
    members: tuple[tuple[str, int], ...]  # name, bytes before compression
    size: int  # bytes of the zip


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that was read and verified."""

    manifest: dict[str, Any]
    trace: Trace
    findings: tuple[Finding, ...]  # with the checks that were skipped
    report_html_present: bool

    @property
    def num_findings(self) -> int:
        """Without the checks that were skipped."""
        return _found(self.findings)


def export_snapshot(
    path: str | os.PathLike[str],
    trace: Trace,
    steps: Sequence[int],
    findings: Sequence[Finding],
    *,
    include_text: bool = False,
    report_html: str | ReportBuilder | None = None,
    selection: str = "",
) -> SnapshotSummary:
    """Write a snapshot of the steps at some positions; the file appears whole or not at all.

    ``findings``: of any steps; those of steps that go in are kept. ``report_html``: a page, or what
    builds one from the recording as it goes in (texts already left out). ``selection``: the URL
    query to return to. Raises ``ValueError`` for positions that do not exist, or a snapshot too
    large to be read back.
    """
    data, summary = _build(trace, steps, findings, include_text, report_html, selection)
    archive.write_atomically(Path(path), data)
    return summary


def snapshot_summary(
    trace: Trace,
    steps: Sequence[int],
    findings: Sequence[Finding],
    *,
    include_text: bool = False,
    report_html: str | ReportBuilder | None = None,
    selection: str = "",
) -> SnapshotSummary:
    """What :func:`export_snapshot` would write, its size included, without writing it."""
    return _build(trace, steps, findings, include_text, report_html, selection)[1]


def import_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read and verify a snapshot in memory. Raises ``TraceFormatError``."""
    path = Path(path)
    members = archive.unpack(path)
    try:
        manifest = verified_manifest(members)
        findings = findings_from_text(utf8(members, archive.FINDINGS))
    except FieldProblem as problem:
        raise problem.at(str(path), None) from None
    trace = Trace(path, [_steps(path, members)])
    return Snapshot(manifest, trace, findings, archive.REPORT in members)


def open_steps(path: Path) -> ArrowFile:
    """The steps of a snapshot. Raises ``TraceFormatError``."""
    members = archive.unpack(path)
    try:
        verified_manifest(members)
    except FieldProblem as problem:
        raise problem.at(str(path), None) from None
    return _steps(path, members)


def without_texts(step: VerifyStep) -> VerifyStep:
    """The same step without the texts of its tokens."""
    extras: Extras = replace(step.workbench, token_texts=None)
    return replace(step, workbench=extras)


def _steps(path: Path, members: dict[str, bytes]) -> ArrowFile:
    return ArrowFile(path, MemoryBytes(members[archive.STEPS]))


def _build(
    trace: Trace,
    steps: Sequence[int],
    findings: Sequence[Finding],
    include_text: bool,
    report_html: str | ReportBuilder | None,
    selection: str,
) -> tuple[bytes, SnapshotSummary]:
    chosen, context = choose(trace, steps, findings)
    positions = sorted((*chosen, *context))
    keys = {trace.key(position) for position in positions}
    kept = [f for f in findings if f.step is None or (f.step, f.rank) in keys]
    members = {archive.STEPS: _steps_member(trace, positions, include_text)}
    members[archive.FINDINGS] = findings_to_text(kept).encode()
    if report_html is not None:
        inner = Trace(Path(archive.STEPS), [_steps(Path(archive.STEPS), members)])
        html = (
            report_html
            if isinstance(report_html, str)
            else report_html(inner, range(len(inner)), kept)
        )
        members[archive.REPORT] = html.encode()
    members[archive.REPRODUCTION] = REPRODUCTION_TEST.encode()
    roles = [
        {
            "step": trace.key(p)[0],
            "rank": trace.key(p)[1],
            "role": "chosen" if p in chosen else "context",
        }
        for p in positions
    ]
    manifest = new_manifest(trace, members, roles, include_text, selection)
    members = {archive.MANIFEST: json.dumps(manifest, indent=1).encode(), **members}
    for name, content in members.items():
        if len(content) > MAX_MEMBER_BYTES:
            raise ValueError(
                f"{name}: expected at most {MAX_MEMBER_BYTES} bytes, found {len(content)}"
            )
    data = archive.pack(members)
    sizes = tuple((name, len(content)) for name, content in members.items())
    included, left_out = tuple(manifest["included"]), tuple(manifest["left_out"])
    return data, SnapshotSummary(
        chosen, context, _found(kept), included, left_out, sizes, len(data)
    )


def _found(findings: Sequence[Finding]) -> int:
    return sum(finding.verdict is not Verdict.SKIPPED for finding in findings)


def choose(
    trace: Trace, steps: Sequence[int], findings: Sequence[Finding]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions that were asked for, and those that go in as context. Raises ``ValueError``."""
    for position in steps:
        if not 0 <= position < len(trace):
            raise ValueError(f"steps: expected positions 0 … {len(trace) - 1}, found {position}")
    if not steps:
        raise ValueError("steps: expected at least one, found none")
    chosen = sorted(set(steps))
    places = {trace.key(position): position for position in reversed(range(len(trace)))}
    divided = {f.step for f in findings if f.check == RANKS_DISAGREE}
    wanted = [(step - 1, rank) for step, rank in map(trace.key, chosen)]
    wanted += [
        (step, rank)
        for step in {trace.key(position)[0] for position in chosen} & divided
        for rank in trace.ranks
    ]
    context = {places[key] for key in wanted if key in places} - set(chosen)
    return tuple(chosen), tuple(sorted(context))


def _steps_member(trace: Trace, positions: Sequence[int], include_text: bool) -> bytes:
    header = trace.header
    if not include_text:
        header = header.without_texts()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, archive.STEPS)
        with TraceWriter(path, header) as out:
            for position in positions:
                step = trace.step(position)
                out.write(step if include_text else without_texts(step))
        return path.read_bytes()
