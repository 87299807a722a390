"""``ddtree live``: a directory into which a server records, followed on a terminal."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.failures import UNREADABLE, one_line_errors
from workbench.cli.text import json_line, printable

if TYPE_CHECKING:
    from engine.live.follower import Follower
    from engine.live.state import LiveState

FAULTY = 1
EVERY = 1.0  # seconds


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(live)


def live(
    directory: Annotated[
        str,
        typer.Argument(metavar="DIR|URL", help="A folder, or a URL such as sftp://host/folder."),
    ],
    once: Annotated[bool, typer.Option("--once", help="Print what is there now, and end.")] = False,
    every: Annotated[
        float, typer.Option(help="Seconds from one look to the next.", min=0.05, max=3600)
    ] = EVERY,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an update.")] = False,
) -> None:
    """Follow a directory of growing traces: each rank's state, findings as they come, ranks that differ.

    Ctrl-C ends it. Exit status 0: nothing at fault; 1: at least one fault; 2: something could not be read, or nothing
    was there.
    """
    with one_line_errors():
        from engine.live.follower import Follower

        follower = Follower(directory)
        if once:
            state = _whole(follower, _print_json if as_json else _no_print)
            if not as_json:
                print("\n".join(table_lines(state)))
        else:
            state = _follow(follower, every, as_json)
    sys.stdout.flush()
    raise typer.Exit(UNREADABLE if state.unreadable else FAULTY if state.has_faults else 0)


def _no_print(state: LiveState) -> None:
    """The table at the end says it all."""


def _print_json(state: LiveState) -> None:
    print(json_line(state.to_json()), flush=True)


def _whole(follower: Follower, tell) -> LiveState:
    """All that is there now."""
    state = follower.poll()
    tell(state)
    while state.behind and state.problem is None:
        state = follower.poll()
        tell(state)
    problem = state.problem
    state = follower.settle()
    tell(state)
    return state if problem is None else _with(state, problem)


def _with(state: LiveState, problem: str) -> LiveState:
    from dataclasses import replace

    return replace(state, problem=problem)


def _follow(follower: Follower, every: float, as_json: bool) -> LiveState:
    """Look again and again until Ctrl-C."""
    lines = Lines()
    with _interruptible() as stop:
        state = follower.poll()
        while not stop.is_set():
            _print_json(state) if as_json else _say(lines.of(state))
            if not state.behind:
                stop.wait(every)
            state = follower.poll()
    _print_json(state) if as_json else _say(["", *table_lines(state)])
    return state


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, a second one ends the command at once."""
    stop, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def interrupt(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _say(lines: list[str]) -> None:
    for line in lines:
        print(line, flush=True)


class Lines:
    """One line a change."""

    def __init__(self) -> None:
        self._ranks: dict[str, str] = {}
        self._agreement, self._problem = "", ""
        self._causes: set[tuple[str, str | None, str]] = set()

    def of(self, state: LiveState) -> list[str]:
        """What is new since the state before, each line with the time of day."""
        now = datetime.now().strftime("%H:%M:%S")
        return [f"{now} {printable(line)}" for line in self._new(state)]

    def _new(self, state: LiveState) -> Iterator[str]:
        if (state.problem or "") != self._problem:
            yield state.problem or f"{state.url}: it can be listed again"
        self._problem = state.problem or ""
        yield from state.events
        for row in state.ranks:
            if self._ranks.get(row.name) != (said := rank_words(row)):
                yield said
            self._ranks[row.name] = said
        yield from self._new_causes(state)
        apart = "; ".join(each.sentence for each in state.agreements if each.apart)
        if apart != self._agreement:
            yield apart or "ranks are compared anew"
        self._agreement = apart

    def _new_causes(self, state: LiveState) -> Iterator[str]:
        for cause in state.causes:
            key = (cause.check, cause.diagnosis, str(cause.verdict))
            if key not in self._causes:
                self._causes.add(key)
                place = f"step {cause.first.step}, rank {cause.first.rank}"
                yield f"{cause.verdict}: {cause.check} {cause.first.name}, {place}: {cause.first.message}"


def rank_words(row) -> str:
    """``● rank 3 recording``, and what is missing or wrong; nothing that changes with every step."""
    from engine.live.state import SYMBOLS

    who = row.name if row.rank is None else f"{row.group} rank {row.rank}".strip()
    parts = [f"{SYMBOLS[row.state]} {who} {row.state}"]
    parts += [row.stopped] if row.stopped else []
    parts += [f"missing {', '.join(row.missing)}"] if row.missing else []
    parts += [f"last error: {row.last_error}"] if row.last_error else []
    parts += [row.problem] if row.problem else []
    return "; ".join(parts)


HEAD = "    rank  state         steps  last step  steps/s  accepted  written  dropped  faulty"


def table_lines(state: LiveState) -> list[str]:
    """The whole state: verdict, a row a rank, how they stand, causes."""
    lines = [f"{state.url}: {verdict(state)}"]
    if state.ranks:
        lines += ["", HEAD, *map(_row, state.ranks)]
        notes = [
            rank_words(row) for row in state.ranks if row.missing or row.problem or row.last_error
        ]
        lines += ["", *(f"  {note}" for note in notes)] if notes else []
    if state.agreements:
        lines += ["", *(f"  {agreement.sentence}" for agreement in state.agreements)]
    for cause in state.causes:
        count = "1 finding" if cause.count == 1 else f"{cause.count} findings"
        times = f"{count}, steps {cause.first.step} … {cause.last.step}"
        lines += [
            "",
            f"  {cause.check} {cause.first.name} · {cause.diagnosis} · {cause.verdict} · {times}",
        ]
        lines += [f"    {cause.first.message}"]
    return list(map(printable, lines))


def verdict(state: LiveState) -> str:
    """One sentence."""
    if state.problem is not None:
        return state.problem.removeprefix(f"{state.url}: ")
    if not state.steps:
        return "no steps yet"
    faults = sum(cause.verdict.value == "fault" for cause in state.causes)
    steps = "1 step" if state.steps == 1 else f"{state.steps} steps"
    if not faults:
        latent = any(cause.verdict.value == "latent" for cause in state.causes)
        return f"{steps}, nothing wrong{' yet' if latent else ''}"
    words = "1 cause" if faults == 1 else f"{faults} causes"
    return f"{words} in {steps}, {sum(row.faults for row in state.ranks)} of them faulty"


def _row(row) -> str:
    from engine.live.state import SYMBOLS

    def cell(value, width: int) -> str:
        text = "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
        return text.rjust(width)

    who = "?" if row.rank is None else f"{row.group} {row.rank}".strip()
    return (
        f"  {SYMBOLS[row.state]} {who:>4}  {row.state:12}{cell(row.steps, 7)}{cell(row.last_step, 11)}"
        f"{cell(row.steps_a_second, 9)}{cell(row.acceptance, 10)}{cell(row.written, 9)}{cell(row.dropped, 9)}"
        f"{cell(row.faults, 8)}"
    )
