"""``ddtree fetch``: get a model ready before it is needed."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.failures import one_line_errors


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fetch)


def fetch(
    model: Annotated[
        str,
        typer.Argument(
            help="smollm2, a Hugging Face folder, a GGUF file, or a hub id such as org/name."
        ),
    ] = "smollm2",
) -> None:
    """Download and convert a model into the cache (DDTREE_CACHE), once; print its folder."""
    from engine.models.catalog import ModelUnavailable, resolve_model
    from workbench.cli.progress import shown

    with one_line_errors(), shown() as progress:
        try:
            folder = resolve_model(model, progress=progress)
        except ModelUnavailable as error:
            raise ValueError(str(error)) from error
    print(folder)
