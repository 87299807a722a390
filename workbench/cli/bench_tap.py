"""``ddtree bench tap``: what the tap costs a running server, as Markdown and JSON."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.bench_output import (
    AsJson,
    Concurrency,
    Files,
    KeyEnv,
    Note,
    Patience,
    Prompts,
    Timeout,
    Title,
    conclude,
    end_in_order,
)
from workbench.cli.failures import one_line_errors
from workbench.cli.key import key_in

if TYPE_CHECKING:
    from engine.server_bench.control_file import ControlFile
    from engine.server_bench.data import Heading
    from engine.server_bench.lot import Door
    from engine.server_bench.tap_pace import Pacing


def tap(
    url: Annotated[str, typer.Argument(help="A server whose tap is in place.")],
    trace: Annotated[
        Path, typer.Option(help="The folder that DDTREE_TRACE_DIR names for the server.")
    ],
    concurrency: Concurrency = None,
    seconds: Annotated[float, typer.Option(min=1, max=86400, help="For each of them.")] = 60.0,
    warm_up: Annotated[float, typer.Option(min=0, max=3600, help="Seconds before each.")] = 15.0,
    alternate: Annotated[int, typer.Option(min=2, max=100_000, help="Steps of a turn.")] = 100,
    max_new_tokens: Annotated[int, typer.Option(min=1, max=32768, help="Of each answer.")] = 384,
    prompt: Prompts = None,
    patience: Patience = 5.0,
    timeout: Timeout = 120.0,
    key_env: KeyEnv = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for tap.md and tap.json; default: print only.")
    ] = None,
    title: Title = None,
    note: Note = None,
    as_json: AsJson = False,
) -> None:
    """What recording costs a running server: it is kept busy while its tap takes turns and times every step.

    The tap's control file is changed meanwhile and put back. Exit status 2: the server or its tap failed.
    """
    with one_line_errors():
        from engine.server_bench.control_file import ControlFile
        from engine.server_bench.data import Heading
        from engine.server_bench.named import doors_of
        from engine.server_bench.plan import Plan
        from engine.server_bench.prompts import PROMPTS
        from engine.server_bench.tap_pace import Pacing

        (door,) = doors_of([f"server={url}"], timeout=timeout, key=key_in(key_env))
        if not trace.is_dir():
            raise ValueError(
                f"trace: expected the folder that DDTREE_TRACE_DIR names, found {str(trace)!r}"
            )
        plan = Plan(
            concurrency=tuple(dict.fromkeys(concurrency or (1, 8))),
            max_new_tokens=max_new_tokens,
            prompts=tuple(prompt or PROMPTS),
        )
        pacing = Pacing(plan, seconds, warm_up, alternate)
        files = Files(out, "tap")
        heading = Heading(
            title or "What the tap costs", note, shlex.join(["ddtree", *sys.argv[1:]])
        )
        file = ControlFile(trace)
        end_in_order()
        try:
            data, failure = _measured(pacing, door, file, heading, patience, files)
        finally:
            file.restore()
        from engine.server_bench.tap_table import lines
    conclude(data, lines, failure, some=bool(data["levels"]), as_json=as_json)


def _measured(
    pacing: Pacing,
    door: Door,
    file: ControlFile,
    heading: Heading,
    patience: float,
    files: Files,
) -> tuple[dict[str, Any], BaseException | None]:
    """What is known when it ends, and what ended it; written after every number in flight."""
    from engine.server.client import ServerError
    from engine.server_bench.about import about
    from engine.server_bench.rounds import ready
    from engine.server_bench.tap_pace import Level, levels_of
    from engine.server_bench.tap_table import data_of, lines
    from workbench.cli.progress import shown

    done: list[Level] = []
    failure: BaseException | None = None
    with shown() as progress:
        ready([door], patience, progress)
        told = about(door.client())
        try:
            for level in levels_of(pacing, door, file, progress):
                done.append(level)
                files.write(data_of(pacing, door, told, done, heading), lines)
        except (ServerError, ValueError, OSError) as error:
            failure = error
        except KeyboardInterrupt as stopped:
            failure = stopped
    problem = (str(failure) or "interrupted") if failure is not None else None
    data = data_of(pacing, door, told, done, heading, problem)
    try:
        files.write(data, lines)
    except OSError as error:  # it is printed all the same
        failure = failure or error
    return data, failure
