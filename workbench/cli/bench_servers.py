"""``ddtree bench servers``: running servers beside each other, in alternation, as Markdown and JSON."""

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
    from engine.server_bench.data import Heading
    from engine.server_bench.lot import Door
    from engine.server_bench.plan import Plan
    from engine.server_bench.recording import Recordings


def servers(
    named: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=URL...",
            help="Ratios are to the first; one server under two names shows what noise looks like.",
        ),
    ],
    concurrency: Concurrency = None,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="That count.")] = 7,
    warm_up: Annotated[int, typer.Option(min=0, max=1000, help="Rounds before them.")] = 2,
    max_new_tokens: Annotated[int, typer.Option(min=1, max=32768, help="Of each answer.")] = 128,
    prompt: Prompts = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Of a round; max(4, 2 x those in flight)."),
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option(help="Answers do not end before --max-new-tokens.")
    ] = True,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask /v1/chat/completions: with the chat template.")
    ] = False,
    patience: Patience = 5.0,
    timeout: Timeout = 120.0,
    key_env: KeyEnv = None,
    record: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER",
            help="The tap of a server records into FOLDER while NAME is asked and rests otherwise. "
            "A server with two names shows what recording costs it. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for servers.md and servers.json; default: print only."),
    ] = None,
    title: Title = None,
    note: Note = None,
    as_json: AsJson = False,
) -> None:
    """Tokens a second of running SGLang servers: the same requests of each, in alternation, ratios within a round.

    Exit status 2: a server cannot be reached or failed; rounds that were complete are kept, marked as incomplete.
    """
    with one_line_errors():
        from engine.server.trial import Endpoint
        from engine.server_bench.data import Heading
        from engine.server_bench.named import doors_of
        from engine.server_bench.plan import Plan
        from engine.server_bench.prompts import PROMPTS
        from engine.server_bench.recording import Recordings, folders_of

        doors = doors_of(named, timeout=timeout, key=key_in(key_env))
        plan = Plan(
            concurrency=tuple(dict.fromkeys(concurrency or (1, 8))),
            rounds=rounds,
            warm_up=warm_up,
            max_new_tokens=max_new_tokens,
            prompts=tuple(prompt or PROMPTS),
            requests=requests,
            ignore_eos=ignore_eos,
            endpoint=Endpoint.CHAT if chat else Endpoint.GENERATE,
        )
        files = Files(out, "servers")
        command = shlex.join(["ddtree", *sys.argv[1:]])
        heading = Heading(title or Heading.title, note, command)
        recordings = Recordings(folders_of(record or (), [door.name for door in doors]))
        end_in_order()
        try:
            data, failure = _measured(plan, doors, heading, patience, files, recordings)
        finally:
            recordings.restore()
        from engine.server_bench.table import lines
    conclude(data, lines, failure, some=bool(data["rounds"]), as_json=as_json)


def _measured(
    plan: Plan,
    doors: list[Door],
    heading: Heading,
    patience: float,
    files: Files,
    recordings: Recordings,
) -> tuple[dict[str, Any], BaseException | None]:
    """What is known when it ends, and what ended it; written after every round, so that a kill leaves it too."""
    from engine.server.client import ServerError
    from engine.server_bench.about import about
    from engine.server_bench.data import data_of
    from engine.server_bench.rounds import Round, ready, rounds_of
    from engine.server_bench.table import lines
    from workbench.cli.progress import shown

    done: list[Round] = []
    failure: BaseException | None = None
    with shown() as progress:
        ready(doors, patience, progress)
        abouts = {door.name: about(door.client()) for door in doors}
        try:
            for one in rounds_of(plan, doors, progress, recordings.turn):
                done.append(one)
                files.write(data_of(plan, doors, abouts, done, heading), lines)
        except (ServerError, ValueError, OSError) as error:
            failure = error
        except KeyboardInterrupt as stopped:
            failure = stopped
    problem = (str(failure) or "interrupted") if failure is not None else None
    data = data_of(plan, doors, abouts, done, heading, problem)
    try:
        files.write(data, lines)
    except OSError as error:  # it is printed all the same
        failure = failure or error
    return data, failure
