"""``ddtree bench``: figures measured here and now, as Markdown, and as JSON on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.failures import one_line_errors

commands = typer.Typer(help="Measure on this machine.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of Markdown.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands, name="bench")


@commands.command()
def decoding(
    model: Annotated[
        str, typer.Option(help="smollm2, a folder, a GGUF file or a hub id.")
    ] = "smollm2",
    new_tokens: Annotated[int, typer.Option(min=1)] = 128,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Tokens a second: transformers' generate, plain, chain and tree decoding, in turn in one process."""
    with one_line_errors():
        from engine.decoding.benchmark import bench_decoding
        from engine.models.catalog import load_target
        from workbench.cli.progress import shown

        with shown() as progress:
            target = load_target(model, progress=progress)
            figures = bench_decoding(
                target, new_tokens=new_tokens, rounds=rounds, progress=progress
            )
    _print(figures, as_json, _decoding_lines)


@commands.command()
def checks(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Default: the bundled recordings.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Steps a second through every check."""
    with one_line_errors():
        from engine.checks.benchmark import bench_checks
        from fixtures import TRACES

        figures = bench_checks(paths or sorted(TRACES.glob("*.ddtree.arrow")), rounds=rounds)
    _print(figures, as_json, _table)


@commands.command()
def drawing(as_json: AsJson = False) -> None:
    """Seconds and bytes to draw a mask of 64 rows and 4096 columns."""
    from workbench.figures.benchmark import bench_mask_drawing

    _print(bench_mask_drawing(), as_json, _table)


def _print(figures: dict[str, Any], as_json: bool, lines: Any) -> None:
    print(json.dumps(figures) if as_json else "\n".join(lines(figures)))


def _decoding_lines(figures: dict[str, Any]) -> list[str]:
    out = ["| method | tokens/s | × transformers | tokens a step |", "| --- | --: | --: | --: |"]
    for name, row in figures["methods"].items():
        speed, ratio = f"{row['tokens_per_second']:.1f}", f"{row['ratio']:.2f}"
        out.append(f"| {name} | {speed} | {ratio} | {row['tokens_per_step']:.2f} |")
    share = figures["weight_gb_s"] / figures["read_gb_s"]
    out += [
        "",
        f"Plain decoding reads weights at {figures['weight_gb_s']:.1f} GB/s, {share:.0%} of the "
        f"{figures['read_gb_s']:.1f} GB/s of a matrix-vector product ({figures['threads']} threads).",
    ]
    return out


def _table(figures: dict[str, Any]) -> list[str]:
    rows = [f"| {name} | {_number(value)} |" for name, value in figures.items()]
    return ["| figure | value |", "| --- | --: |", *rows]


def _number(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value}"
