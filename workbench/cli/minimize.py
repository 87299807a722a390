"""``ddtree minimize``: the smallest steps that still show a fault, as step JSON and as a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.failures import one_line_errors

if TYPE_CHECKING:
    from engine.minimize import Minimized


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(minimize)


def minimize(
    path: Annotated[Path, typer.Argument(help="A recording or a snapshot with a fault.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to make; default: NAME-minimal beside the recording."),
    ] = None,
    diagnosis: Annotated[
        str | None, typer.Option(help="Which cause to keep; default: the first.")
    ] = None,
) -> None:
    """Drop steps, requests, nodes, rows and prefix as long as the same diagnosis stays the only cause.

    Writes steps.jsonl and test_repro.py, which fails until the steps are mended.
    """
    with one_line_errors():
        from engine.minimize import minimize as shrink
        from engine.trace import open_trace
        from engine.trace.snapshot import without_texts
        from workbench.cli.progress import shown

        folder = out or path.with_name(path.name.split(".")[0] + "-minimal")
        if folder.exists():
            raise ValueError(f"{folder}: exists already; name another with --out")
        steps = [without_texts(step) for step in open_trace(path)]
        with shown() as progress:
            found = shrink(steps, diagnosis=diagnosis, progress=progress)
        _write(folder, found)
        print("\n".join(_summary(folder, found)))


def _write(folder: Path, found: Minimized) -> None:
    from engine.trace import dumps
    from engine.trace.reproduction import REPRODUCTION_TEST

    folder.mkdir(parents=True)
    lines = "".join(dumps(step) + "\n" for step in found.steps)
    (folder / "steps.jsonl").write_text(lines, encoding="utf-8")
    test = REPRODUCTION_TEST.replace("steps.ddtree.arrow", "steps.jsonl")
    (folder / "test_repro.py").write_text(test, encoding="utf-8")


def _summary(folder: Path, found: Minimized) -> list[str]:
    last = found.steps[-1]
    nodes = ", ".join(str(len(request.tree.parents)) for request in last.requests)
    prefix = ", ".join(str(request.prefix_len) for request in last.requests)
    return [
        f"{folder}: {found.cause.check} {found.cause.name} · {found.cause.diagnosis}",
        f"  {found.cause.message}",
        f"  {len(found.steps)} steps, {last.captured_bs} requests, nodes {nodes}, budget "
        f"{last.config.budget}, prefix {prefix} ({found.tries} tries)",
    ]
