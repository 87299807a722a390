"""``ddtree snapshot``: export, show and import the zip that goes into a bug report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.failures import one_line_errors
from workbench.snapshot_words import listed

if TYPE_CHECKING:
    from engine.checks.registry import Report
    from engine.trace import Trace
    from engine.trace.snapshot import SnapshotSummary

commands = typer.Typer(
    help="Take some steps out of a recording, as one file for a bug report.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands, name="snapshot")


@commands.command()
def export(
    trace: Annotated[Path, typer.Argument(help="A recording or a directory.")],
    out: Annotated[Path, typer.Option(help="The zip to write.")],
    steps: Annotated[
        str | None, typer.Option(help="Step numbers, as 3,5-9; of every rank.")
    ] = None,
    faults: Annotated[
        bool, typer.Option("--faults", help="First faulty step of each cause (default).")
    ] = False,
    include_text: Annotated[
        bool, typer.Option("--include-text", help="Token texts and prompts too.")
    ] = False,
) -> None:
    """Write some steps, the step before each, the findings, a report and a reproducing test."""
    with one_line_errors():
        from engine.checks.registry import check_trace
        from engine.trace import open_trace
        from engine.trace.snapshot import export_snapshot, without_texts

        if steps is not None and faults:
            raise ValueError("--steps and --faults: expected one of them, found both")
        if out.exists() and out.samefile(trace):
            raise ValueError(f"{out}: expected another file than the recording itself")
        opened = open_trace(trace)
        report = check_trace(opened if include_text else map(without_texts, opened))
        positions = numbered(opened, steps) if steps is not None else first_faults(opened, report)
        from workbench.report import build_report

        summary = export_snapshot(
            out,
            opened,
            positions,
            (*report.findings, *report.skipped),
            include_text=include_text,
            report_html=partial(build_report, include_text=include_text),
        )
        print("\n".join(_summary_lines(out, summary)))


@commands.command()
def show(path: Annotated[Path, typer.Argument(help="A snapshot.")]) -> None:
    """Say what a snapshot holds, after verifying it."""
    with one_line_errors():
        from engine.trace.snapshot import import_snapshot
        from workbench.cli.text import printable

        snapshot = import_snapshot(path)
        manifest = snapshot.manifest
        print(f"{path.name}: {len(snapshot.trace)} steps, {snapshot.num_findings} findings")
        for name in ("created", "included", "left_out", "versions", "selection"):
            print(f"  {name}: {printable(_words(manifest.get(name)))}")
        print(f"  report: {'yes' if snapshot.report_html_present else 'no'}")
        for finding in snapshot.findings:
            place = f"step {finding.step}, rank {finding.rank}"
            print(printable(f"  {finding.verdict} {finding.check} {place}: {finding.message}"))


@commands.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="A snapshot.")],
    to: Annotated[Path, typer.Option(help="Directory for its recording; made if missing.")],
) -> None:
    """Write the recording of a verified snapshot, as NAME.ddtree.arrow; never overwrites."""
    with one_line_errors():
        from engine.trace.convert import write_arrow
        from engine.trace.snapshot import import_snapshot
        from engine.trace.writer import SUFFIX

        snapshot = import_snapshot(path)
        to.mkdir(parents=True, exist_ok=True)
        target = to / f"{path.stem.removesuffix('.ddtree')}{SUFFIX}"
        print(f"{target}: {write_arrow(snapshot.trace, target)} steps")


def numbered(trace: Trace, text: str) -> list[int]:
    """Positions of step numbers given as ``3,5-9``, on every rank. Raises ``ValueError``."""
    ranges = [_range(part) for part in text.split(",")]
    found = [p for p in range(len(trace)) if any(trace.key(p)[0] in part for part in ranges)]
    for part in ranges:
        if not any(trace.key(position)[0] in part for position in found):
            raise ValueError(
                f"--steps: expected recorded steps, found {part.start}-{part.stop - 1}"
            )
    return found


def _range(part: str) -> range:
    first, dash, last = part.strip().partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)):
        raise ValueError(f"--steps: expected numbers as 3,5-9, found {part!r}")
    return range(int(first), int(last or first) + 1)


def first_faults(trace: Trace, report: Report) -> list[int]:
    """Position of the first faulty step of each cause. Raises ``ValueError`` where nothing is at
    fault.
    """
    from workbench.cli.text import grouped

    firsts = [findings[0] for findings in grouped(report.causes).values()]
    if not firsts:
        raise ValueError(
            f"{trace.path}: nothing at fault in {report.steps} steps; name some with --steps"
        )
    return [
        trace.index(f.step, f.rank) for f in firsts if f.step is not None and f.rank is not None
    ]


def _summary_lines(out: Path, summary: SnapshotSummary) -> list[str]:
    steps = f"{len(summary.chosen)} chosen steps, {len(summary.context)} as context"
    return [
        f"{out}: {summary.size:,} bytes; {steps}, {summary.findings} findings",
        f"  included: {', '.join(summary.included)}",
        f"  left out: {listed(summary.left_out) or 'nothing'}",
    ]


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return listed(map(str, value)) if isinstance(value, list) else str(value)
