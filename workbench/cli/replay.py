"""``ddtree replay``: plain decoding's choice at every node of a recording, against what its target predicted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.device import Device, Dtype, DtypeOption
from workbench.cli.failures import UNREADABLE, complain, one_line_errors
from workbench.cli.text import json_line, printable

if TYPE_CHECKING:
    from engine.models.catalog import Target
    from engine.replay.replay import ReplayedStep
    from engine.replay.rows import RequestRows, RowDifference
    from engine.trace import PromptRecord, Trace

DIFFERS = 1
SHOWN = 4  # differing rows of one request


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


def replay(
    path: Annotated[Path, typer.Argument(metavar="TRACE", help="A recording with its prompts.")],
    target: Annotated[
        str, typer.Option(help="The model of the recording: smollm2, a folder, a GGUF file.")
    ] = "smollm2",
    rank: Annotated[int | None, typer.Option(help="Which rank; default: the first.")] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help='Prompts that the recording lacks: a file {"request id": [token ids]}.'),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the steps with plain decoding's choices here.")
    ] = None,
    device: Device = "cpu",
    dtype: DtypeOption = Dtype.FLOAT32,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a step and request.")
    ] = False,
) -> None:
    """Say where the recorded target predicts what plain decoding of the same tokens does not.

    Exit status 0: the same but for near-ties; 1: rows differ; 2: it cannot be compared, or not all of it.
    """
    with one_line_errors():
        from engine.replay.prompts import read_prompts
        from engine.trace import open_trace
        from workbench.cli.device import load

        added = () if prompts is None else read_prompts(prompts)
        trace = open_trace(path)
        chosen = _rank_of(trace, rank)
        model = load(target, device, dtype)
        found = _replayed(trace, chosen, model, added, out, as_json)
    if not as_json:
        print("\n".join(_text(path, chosen, model, found)))
        sys.stdout.flush()
    raise typer.Exit(_status(path, found))


def _rank_of(trace: Trace, rank: int | None) -> int:
    """The rank that is replayed. Raises ``ValueError`` where it recorded nothing."""
    if not trace.ranks:
        raise ValueError(f"{trace.path}: expected at least one step, found none")
    if rank is not None and rank not in trace.ranks:
        known = ", ".join(map(str, trace.ranks))
        raise ValueError(f"rank: expected one of {known}, found {rank}")
    return trace.ranks[0] if rank is None else rank


def _replayed(
    trace: Trace,
    rank: int,
    target: Target,
    prompts: tuple[PromptRecord, ...],
    out: Path | None,
    as_json: bool,
) -> list[RequestRows]:
    """What came of each step and request; printed as JSON and written out as it comes."""
    from engine.replay.replay import replay as replay_steps
    from workbench.cli.progress import shown

    found: list[RequestRows] = []
    total = sum(trace.key(position)[1] == rank for position in range(len(trace)))
    with ExitStack() as stack:
        progress = stack.enter_context(shown())
        steps: Iterable[ReplayedStep] = replay_steps(trace, rank, target.model, prompts)
        if out is not None:
            steps = _written(trace, prompts, out, steps, stack)
        for number, step in enumerate(steps, start=1):
            progress("plain decoding of the recorded trees", number / total)
            found += step.requests
            for rows in step.requests if as_json else ():
                print(json_line(rows.to_json()))
    return found


def _written(
    trace: Trace,
    prompts: tuple[PromptRecord, ...],
    out: Path,
    steps: Iterable[ReplayedStep],
    stack: ExitStack,
) -> Iterator[ReplayedStep]:
    """The same steps, each appended to ``out``."""
    from engine.trace import TraceWriter

    command = f"ddtree replay {shlex.quote(str(trace.path))}"
    known = (*trace.header.prompts, *prompts)
    header = replace(trace.header, created_by="ddtree replay", command=command, prompts=known)
    writer = stack.enter_context(TraceWriter(out, header))
    for step in steps:
        writer.write(step.step)
        yield step


def _status(path: Path, found: list[RequestRows]) -> int:
    problems = list(dict.fromkeys(rows.problem for rows in found if rows.problem is not None))
    if problems:
        more = f" (and {len(problems) - 1} more reasons)" if len(problems) > 1 else ""
        lost = sum(rows.problem is not None for rows in found)
        where = f"{path}: {lost} of {len(found)} requests of steps cannot be compared"
        complain(ValueError(f"{where}: {problems[0]}"), more)
    if any(rows.differ for rows in found):
        return DIFFERS
    return UNREADABLE if problems or not found else 0


def _text(path: Path, rank: int, target: Target, found: list[RequestRows]) -> list[str]:
    steps, rows = len({r.step for r in found}), sum(r.rows for r in found)
    counts = (
        f"{sum(r.equal for r in found)} equal, {sum(r.near_ties for r in found)} near-ties, "
        f"{sum(r.differ for r in found)} differ"
    )
    lines = [
        f"{path.name}: rank {rank} against {target.name}: {steps} steps, {rows} rows: {counts}"
    ]
    first = next((r for r in found if r.differ), None)
    if first is not None:
        lines[0] += f"; first at step {first.step}, request {first.rid}"
    for request in found:
        lines += _request_lines(request, target) if request.differences else []
    return list(map(printable, lines))


def _request_lines(rows: RequestRows, target: Target) -> list[str]:
    counts = f"{rows.equal} equal, {rows.near_ties} near-ties, {rows.differ} differ"
    lines = ["", f"  step {rows.step}, request {rows.rid}: {rows.rows} rows: {counts}"]
    worst_first = sorted(rows.differences, key=lambda difference: difference.near_tie)
    lines += [_row_line(difference, target) for difference in worst_first[:SHOWN]]
    rest = len(rows.differences) - SHOWN
    return [*lines, f"    and {rest} more rows"] if rest > 0 else lines


def _row_line(found: RowDifference, target: Target) -> str:
    kind = "near-tie: " if found.near_tie else ""
    recorded, plain = _token(found.recorded, target), _token(found.plain, target)
    return (
        f"    {kind}row {found.row} (node {found.node}): recorded {recorded}{_by(found.recorded_margin)}, "
        f"plain decoding {plain}{_by(found.plain_margin)}"
    )


def _token(token: int, target: Target) -> str:
    known = 0 <= token < target.model.config.vocab_size
    return f"{token} {target.tokenizer.token_text(token)!r}" if known else f"{token} (no token)"


def _by(margin: float | None) -> str:
    return "" if margin is None else f" by {margin:.4g}"
