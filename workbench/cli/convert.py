"""``ddtree convert``: JSON lines to Arrow and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.failures import one_line_errors


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(convert)


def convert(
    source: Annotated[Path, typer.Argument(help="A recording, a snapshot or a directory.")],
    target: Annotated[Path, typer.Argument(help="*.ddtree.arrow or *.jsonl; never overwritten.")],
) -> None:
    """Write a recording in the other format, without loss."""
    with one_line_errors():
        from engine.trace.convert import convert as write

        print(f"{target}: {write(source, target)} steps")
