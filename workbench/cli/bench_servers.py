"""``ddtree bench servers``: running servers beside each other, in alternation, as Markdown and JSON."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.failures import complain, one_line_errors
from workbench.cli.key import key_in
from workbench.cli.text import json_line

if TYPE_CHECKING:
    from engine.server_bench.data import Heading
    from engine.server_bench.lot import Door
    from engine.server_bench.plan import Plan
    from engine.server_bench.recording import Recordings

FAILED = 2


def servers(
    named: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=URL...",
            help="Ratios are to the first; one server under two names shows what noise looks like.",
        ),
    ],
    concurrency: Annotated[
        list[int] | None,
        typer.Option(min=1, max=1024, help="Requests in flight; 1 and 8. Repeatable."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="That count.")] = 7,
    warm_up: Annotated[int, typer.Option(min=0, max=1000, help="Rounds before them.")] = 2,
    max_new_tokens: Annotated[int, typer.Option(min=1, max=32768, help="Of each answer.")] = 128,
    prompt: Annotated[
        list[str] | None, typer.Option(help="Again for another; default: twelve of all sorts.")
    ] = None,
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
    patience: Annotated[
        float, typer.Option(help="Seconds to wait until all are ready.", min=0, max=86400)
    ] = 5.0,
    timeout: Annotated[float, typer.Option(help="Seconds of one answer.", min=1, max=3600)] = 120.0,
    key_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the servers' API key.")
    ] = None,
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
    title: Annotated[str | None, typer.Option(help="Of the table.")] = None,
    note: Annotated[str | None, typer.Option(help="A line above the table.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of Markdown.")] = False,
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
        if out is not None:
            make_folder(out)
        command = shlex.join(["ddtree", *sys.argv[1:]])
        heading = Heading(title or Heading.title, note, command)
        recordings = Recordings(folders_of(record or (), [door.name for door in doors]))
        end_in_order()
        try:
            data, failure = _measured(plan, doors, heading, patience, out, recordings)
        finally:
            recordings.restore()
    text = json_line(data) if as_json else "\n".join(_lines(data))
    if data["rounds"] or failure is None:
        print(text)
        sys.stdout.flush()
    if isinstance(failure, KeyboardInterrupt):
        raise failure
    if failure is not None:
        complain(failure)
        raise typer.Exit(FAILED)


def end_in_order() -> None:
    """From outside as with Ctrl-C, so that control files are put back."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def make_folder(folder: Path) -> None:
    """Raises ``ValueError`` where it cannot be one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"out: expected a folder, found {folder} ({error.strerror})") from None


def _measured(
    plan: Plan,
    doors: list[Door],
    heading: Heading,
    patience: float,
    out: Path | None,
    recordings: Recordings,
) -> tuple[dict[str, Any], BaseException | None]:
    """What is known when it ends, and what ended it; written after every round, so that a kill leaves it too."""
    from engine.server.client import ServerError
    from engine.server_bench.about import about
    from engine.server_bench.data import data_of
    from engine.server_bench.rounds import Round, ready, rounds_of
    from workbench.cli.progress import shown

    done: list[Round] = []
    failure: BaseException | None = None
    with shown() as progress:
        ready(doors, patience, progress)
        abouts = {door.name: about(door.client()) for door in doors}
        try:
            for one in rounds_of(plan, doors, progress, recordings.turn):
                done.append(one)
                _write(data_of(plan, doors, abouts, done, heading), out)
        except (ServerError, ValueError, OSError) as error:
            failure = error
        except KeyboardInterrupt as stopped:
            failure = stopped
    problem = (str(failure) or "interrupted") if failure is not None else None
    data = data_of(plan, doors, abouts, done, heading, problem)
    _write(data, out)
    return data, failure


def _write(data: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        (out / "servers.md").write_text("\n".join(_lines(data)) + "\n", encoding="utf-8")
        (out / "servers.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _lines(data: dict[str, Any]) -> list[str]:
    from engine.server_bench.table import lines

    return list(lines(data))
