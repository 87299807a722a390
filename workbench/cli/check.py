"""``ddtree check``: run every check over recordings. Exit status 0: no fault; 1: a fault; 2: an
input is unreadable.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.failures import UNREADABLE, complain
from workbench.cli.inputs import open_inputs, unread_below

if TYPE_CHECKING:
    from engine.checks.registry import Report
    from engine.trace import Trace

FAULTY = 1
INTERRUPTED = 130


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)


def check(
    paths: Annotated[list[Path], typer.Argument(help="Recordings, snapshots or directories.")],
    format: Annotated[Format, typer.Option(help="text, or one JSON finding a line.")] = Format.TEXT,
) -> None:
    """Say what is wrong in recorded verify steps, where and why.

    Exit status 0: nothing at fault; 1: at least one fault; 2: an input could not be read.
    """
    status = 0
    for folder in filter(None, map(unread_below, paths)):
        complain(
            ValueError(f"{folder}: holds recordings too; they are not read unless it is named")
        )
    for path, opened in open_inputs(paths):
        if isinstance(opened, Exception):
            complain(opened)
            status = UNREADABLE
            continue
        result = _run(path, opened)
        _print(path, result, format)
        if result.interrupted:
            raise typer.Exit(INTERRUPTED)
        status = max(status, result.status)
    raise typer.Exit(status)


@dataclass(frozen=True)
class Result:
    """What came of one input."""

    report: Report
    errors: tuple[Exception, ...]  # steps that could not be read
    truncated: bool
    interrupted: bool

    @property
    def status(self) -> int:
        """The exit status that this input alone would give."""
        if self.errors or not self.report.steps:
            return UNREADABLE
        return FAULTY if self.report.faults else 0


def _run(path: Path, trace: Trace) -> Result:
    from engine.checks.registry import check_trace
    from workbench.cli.steps import Steps

    with Steps(path.name, trace) as steps:
        report = check_trace(steps)
        return Result(report, tuple(steps.errors), trace.truncated, steps.interrupted)


def _print(path: Path, result: Result, format: Format) -> None:
    from engine.trace.findings_json import finding_to_line
    from workbench.cli.text import report_lines

    report = result.report
    if format is Format.JSON:
        lines = [finding_to_line(finding) for finding in (*report.findings, *report.skipped)]
    else:
        lines = report_lines(path.name, report) if report.steps else []
    for line in lines:
        print(line)
    sys.stdout.flush()
    _complain(path, result)


def _complain(path: Path, result: Result) -> None:
    if result.errors:
        rest = len(result.errors) - 1
        complain(result.errors[0], f" (and {rest} more unreadable steps)" if rest else "")
    elif result.interrupted:
        complain(ValueError(f"{path}: stopped after {result.report.steps} steps"))
    elif not result.report.steps:
        complain(ValueError(f"{path}: expected at least one step, found none"))
    elif result.truncated:
        complain(
            ValueError(f"{path}: ends within a step; the complete ones before it were checked")
        )
