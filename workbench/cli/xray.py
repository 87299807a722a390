"""``ddtree xray``: run an attention kernel on a recorded step and say what it really attends to."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.device import Device
from workbench.cli.failures import one_line_errors
from workbench.cli.text import json_line, printable

if TYPE_CHECKING:
    from engine.step import VerifyStep
    from engine.trace import Trace

DIFFERS = 1
SHOWN = 12  # foreign keys of a request


class KernelName(StrEnum):
    """What is X-rayed."""

    ENGINE = "engine"
    ADDRESSED = "addressed"
    SGLANG = "sglang"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(xray)


def xray(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="A recording, step JSON or a snapshot.")
    ],
    step: Annotated[int, typer.Option(help="Which step.")],
    kernel: Annotated[
        KernelName, typer.Option(help="engine, addressed, or sglang: its own Triton kernel.")
    ] = KernelName.ENGINE,
    rank: Annotated[int | None, typer.Option(help="Which rank; default: the first.")] = None,
    request: Annotated[str | None, typer.Option(help="One request id; default: all.")] = None,
    device: Device = "cpu",
    sglang_path: Annotated[
        Path | None,
        typer.Option(help="An unpacked sglang wheel (DDTREE_SGLANG_PATH); default: installed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run an attention kernel on a step's own metadata and compare all four masks.

    Queries and keys are zero, values one-hot: the output names what each row attends to. Without a GPU, Triton's
    interpreter runs the kernel. Exit status 0: all masks agree; 1: two differ; 2: it cannot be X-rayed.
    """
    with one_line_errors():
        from engine.models.device import find_device
        from engine.trace import open_trace
        from engine.xray.kernels import Kernel
        from engine.xray.process import xray_step
        from workbench.cli.progress import shown

        find_device(device)
        chosen = step_of(open_trace(path), step, rank)
        if request is not None and request not in [r.rid for r in chosen.requests]:
            known = ", ".join(r.rid for r in chosen.requests) or "none"
            raise ValueError(
                f"request: step {step} has {known}, expected one of them, found {request}"
            )
        with shown() as progress:
            found = xray_step(
                chosen,
                Kernel(kernel.value),
                device=device,
                sglang_path=None if sglang_path is None else str(sglang_path),
                progress=progress,
            )
    report = found.report
    if request is not None:
        report["requests"] = [r for r in report["requests"] if r["request"] == request]
    print(json_line(report) if as_json else "\n".join(_lines(path, report)))
    raise typer.Exit(0 if found.agrees else DIFFERS)


def step_of(trace: Trace, number: int, rank: int | None) -> VerifyStep:
    """The step by number and rank. Raises ``ValueError`` where it is not recorded."""
    keys = [trace.key(position) for position in range(len(trace))]
    ranks = sorted({r for _, r in keys})
    rank = ranks[0] if rank is None and ranks else rank
    if (number, rank) not in keys:
        steps = [s for s, r in keys if r == rank]
        held = f"steps {min(steps)} … {max(steps)}" if steps else f"ranks {ranks}"
        raise ValueError(
            f"{trace.path}: expected {held} (rank {rank}), found no step {number} there"
        )
    return trace.step(keys.index((number, rank)))


def _lines(path: Path, report: dict[str, Any]) -> list[str]:
    where = f"{path.name}: step {report['step']}, rank {report['rank']}"
    prefix = "reads" if report["prefix_mask_read"] else "does not read"
    lines = [
        f"{where}: {report['kernel']} on {report['device']}; it {prefix} prefix columns of the mask"
    ]
    for request in report["requests"]:
        lines += ["", *_request_lines(request)]
    return list(map(printable, lines))


def _request_lines(request: dict[str, Any]) -> list[str]:
    rows = f"{request['rows']} rows ({request['nodes']} nodes)"
    lines = [f"  {request['request']}: {rows} behind {request['prefix_len']} prefix columns"]
    lines += [f"    {_pair_line(pair)}" for pair in request["pairs"]]
    for name in NAMES:
        if request[name]:
            lines.append(f"    {NAMES[name]}: {_spans(request[name])}")
    foreign = request["foreign"]
    for item in foreign[:SHOWN]:
        lines.append(f"    foreign: row {item['row']} attends to {item['key']}")
    rest = request["foreign_count"] - min(len(foreign), SHOWN)
    if rest:
        lines.append(f"    foreign: {rest} more")
    if request["repeated"]:
        row, column, times = request["repeated"][0]
        more = f" ({len(request['repeated'])} such cells)"
        lines.append(f"    repeated: row {row} attends to column {column} {times} times{more}")
    return [*lines, f"    {request['sentence']}"]


NAMES = {
    "unwritten": "rows never written",
    "empty": "rows that see nothing",
    "contested": "rows that several programs write",
    "outside": "rows that read outside the mask buffer",
}


def _pair_line(pair: dict[str, Any]) -> str:
    if pair["agree"]:
        return f"{pair['left']} = {pair['right']}"
    first, foreign = pair["first"], pair["foreign"]
    cells = "1 cell" if pair["cells"] == 1 else f"{pair['cells']} cells"
    parts = [cells] if pair["cells"] else []
    parts += [f"first at row {first['row']}, column {first['column']}"] if first else []
    parts += [f"{foreign} foreign keys"] if foreign else []
    return f"{pair['left']} ≠ {pair['right']}: {', '.join(parts)}"


def _spans(rows: list[int]) -> str:
    from engine.xray.words import spans

    return spans(rows)
