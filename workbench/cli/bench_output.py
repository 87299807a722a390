"""What ``ddtree bench servers`` and ``ddtree bench tap`` have in common: options, signals, files, and how they end."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.failures import complain
from workbench.cli.text import json_line

FAILED = 2
Concurrency = Annotated[
    list[int] | None,
    typer.Option(min=1, max=1024, help="Requests in flight; 1 and 8. Repeatable."),
]
Prompts = Annotated[
    list[str] | None, typer.Option(help="Again for another; default: twelve of all sorts.")
]
Patience = Annotated[
    float, typer.Option(help="Seconds to wait until all are ready.", min=0, max=86400)
]
Timeout = Annotated[float, typer.Option(help="Seconds of one answer.", min=1, max=3600)]
KeyEnv = Annotated[
    str | None, typer.Option(help="Environment variable that holds the servers' API key.")
]
Title = Annotated[str | None, typer.Option(help="Of the table.")]
Note = Annotated[str | None, typer.Option(help="A line above the table.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of Markdown.")]
Lines = Callable[[dict[str, Any]], Iterator[str]]


def end_in_order() -> None:
    """From outside as with Ctrl-C, so that control files are put back."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


class Files:
    """``name.md`` and ``name.json`` in a folder, or nothing. Raises ``ValueError`` where they cannot be written."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._paths = [] if folder is None else [folder / f"{name}.{end}" for end in ("md", "json")]
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"out: expected a folder, found {folder} ({error.strerror})") from None
        for path in self._paths:  # before anything is measured
            there = path.exists()
            try:
                path.open("ab").close()
                if not there:
                    path.unlink()
            except OSError as error:
                raise ValueError(f"out: expected to write {path} ({error.strerror})") from None

    def write(self, data: dict[str, Any], lines: Lines) -> None:
        """Raises ``OSError``."""
        for path, text in zip(
            self._paths, ("\n".join(lines(data)), json.dumps(data, indent=1)), strict=False
        ):
            path.write_text(text + "\n", encoding="utf-8")


def conclude(
    data: dict[str, Any], lines: Lines, failure: BaseException | None, *, some: bool, as_json: bool
) -> None:
    """Print what there is (``some``: anything was complete) and end as ``failure`` says."""
    if some or failure is None:
        print(json_line(data) if as_json else "\n".join(lines(data)))
        sys.stdout.flush()
    if isinstance(failure, KeyboardInterrupt):
        raise failure
    if failure is not None:
        complain(failure)
        raise typer.Exit(FAILED)
