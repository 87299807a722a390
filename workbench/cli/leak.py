"""``ddtree leak``: how much attention a recorded step spends where it must not, run again with its target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.device import Device, Dtype, DtypeOption
from workbench.cli.failures import one_line_errors
from workbench.cli.text import json_line, printable

LEAKS = 1


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(leak)


def leak(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A recording with its prompts.")],
    step: Annotated[int, typer.Option(help="Which step.")],
    target: Annotated[
        str, typer.Option(help="The model of the recording: smollm2, a folder, a GGUF file.")
    ] = "smollm2",
    rank: Annotated[int | None, typer.Option(help="Which rank; default: the first.")] = None,
    device: Device = "cpu",
    dtype: DtypeOption = Dtype.FLOAT32,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run a step again with its target: attention on padding, on nodes that are no ancestors, on foreign slots.

    By row, layer and head, with the largest change of a logit under the intended mask. Exit status 0: nothing leaks;
    1: something does; 2: the step cannot be run again.
    """
    with one_line_errors():
        from engine.trace import open_trace
        from engine.xray.history import committed_tokens
        from engine.xray.leak import leak_of
        from engine.xray.leak_report import leak_report
        from workbench.cli.device import load
        from workbench.cli.xray import step_of

        trace = open_trace(path)
        chosen = step_of(trace, step, rank)
        history = committed_tokens(trace, chosen.step, chosen.rank)
        model = load(target, device, dtype)
        found = leak_of(chosen, history, model.model)
        report = leak_report(chosen, found, target)
    print(json_line(report) if as_json else "\n".join(_lines(path, report)))
    raise typer.Exit(LEAKS if report["leaks"] else 0)


def _lines(path: Path, report: dict[str, Any]) -> list[str]:
    size = f"{report['layers']} layers × {report['heads']} heads"
    head = f"{path.name}: step {report['step']}, rank {report['rank']}: {report['target']}, {size}"
    kept = f"{report['choices_kept']} of {report['written_rows']} written rows choose what was recorded"
    if not report["leaks"]:
        change = report["largest_logit_change"]
        lines = [f"{head}: no attention leaks; largest logit change {change:g}; {kept}"]
        return list(map(printable, lines))
    leaking = sum(row["max"] > 0 for row in report["rows"])
    rows = [row for row in report["rows"] if row["max"] > 0 or row["logit_change"] > 0]
    do = "row attends to what it" if leaking == 1 else "rows attend to what they"
    lines = [f"{head}: {leaking} {do} must not; {kept}", "", TITLE]
    lines += map(_row_line, rows)
    unwritten = [row for row in report["rows"] if not row["written"]]
    if unwritten:
        one = len(unwritten) == 1
        do = "row is never written; it attends" if one else "rows are never written; they attend"
        lines.append(f"  {len(unwritten)} {do} to nothing")
    return list(map(printable, lines))


TITLE = (
    "  request   row    mean     max  (layer, head)  padding  no ancestor  other request  stale slot"
    "  a key again  logit change"
)


def _row_line(row: dict[str, Any]) -> str:
    where = f"({row['layer']}, {row['head']})"
    places = list(row["places"].values())
    return (
        f"  {row['request'][:8]:8} {row['row']:4} {row['mean']:7.4f} {row['max']:7.4f}  {where:13}"
        f"  {places[0]:7.4f}  {places[1]:11.4f}  {places[2]:13.4f}  {places[3]:10.4f}"
        f"  {places[4]:11.4f}  {row['logit_change']:12.4f}"
    )
