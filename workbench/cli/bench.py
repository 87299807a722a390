"""``ddtree bench``: figures measured here and now, as Markdown, and as JSON on request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.bench_gpu import gpu
from workbench.cli.bench_servers import servers
from workbench.cli.bench_tap import tap
from workbench.cli.device import Device, Dtype, DtypeOption, load
from workbench.cli.failures import one_line_errors

if TYPE_CHECKING:
    from engine.checks.synthetic import Shape

commands = typer.Typer(help="Measure here and now.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of Markdown.")]
MIB = 1 << 20
TIMED = "import sys; from workbench.cli.bench import timed_check; timed_check(sys.argv[1])"


class Layout(StrEnum):
    """Columns that a synthetic mask holds."""

    FULL = "full"
    QLEN = "qlen"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands.command()(gpu)
    commands.command()(servers)
    commands.command()(tap)
    app.add_typer(commands, name="bench")


@commands.command()
def decoding(
    model: Annotated[
        str, typer.Option(help="smollm2, a folder, a GGUF file or a hub id.")
    ] = "smollm2",
    new_tokens: Annotated[int, typer.Option(min=1)] = 128,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    drafter: Annotated[
        str, typer.Option(help="dflash (bundled), oracle, prompt-lookup, or a DFlash folder.")
    ] = "dflash",
    device: Device = "cpu",
    dtype: DtypeOption = Dtype.FLOAT32,
    as_json: AsJson = False,
) -> None:
    """Tokens a second: transformers' generate, plain, chain and tree decoding, in turn in one process.

    In float32 another text than plain decoding's ends it; in bfloat16 the table says where one parts, and by how much.
    """
    with one_line_errors():
        from engine.decoding.benchmark import bench_decoding
        from engine.drafters.catalog import check_drafter
        from workbench.cli.progress import shown

        check_drafter(drafter, model)
        target = load(model, device, dtype)
        with shown() as progress:
            figures = bench_decoding(
                target, new_tokens=new_tokens, rounds=rounds, drafter=drafter, progress=progress
            )
    _print(figures, as_json, _decoding_lines)


@commands.command()
def checks(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Default: the bundled recordings.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of recordings.")] = 3,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Steps made for the purpose, read and checked once.")
    ] = False,
    steps: Annotated[int, typer.Option(min=1, help="Synthetic steps.")] = 10_000,
    batch: Annotated[int, typer.Option(min=1, max=64, help="Requests of one.")] = 4,
    budget: Annotated[int, typer.Option(min=1, max=512, help="Nodes without the root.")] = 16,
    prefix: Annotated[
        list[int] | None,
        typer.Option(min=16, max=100_000, help="Tokens of its requests; 2000. Repeatable."),
    ] = None,
    layout: Annotated[
        list[Layout] | None, typer.Option(help="Of its mask; full. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Steps a second through every check: of recordings in memory, or read from a synthetic one as
    `ddtree check` does.
    """
    with one_line_errors():
        if not synthetic:
            from engine.checks.benchmark import bench_checks
            from fixtures import TRACES

            figures = bench_checks(paths or sorted(TRACES.glob("*.ddtree.arrow")), rounds=rounds)
            _print(figures, as_json, _table)
            return
        if paths:
            raise ValueError("--synthetic makes its own recording: expected no path beside it")
        from engine.checks.synthetic import Shape

        shapes = [
            Shape(steps, batch, budget, length, kind.value)
            for kind in layout or [Layout.FULL]
            for length in prefix or [2_000]
        ]
        runs = [_timed_in_a_process(shape) for shape in shapes]
    _print({"runs": runs}, as_json, _synthetic_lines)


def _timed_in_a_process(shape: Shape) -> dict[str, Any]:
    """Write the steps, then time another process that reads and checks them, so that its memory is the checker's."""
    from engine.checks.synthetic import write_synthetic
    from workbench.cli.progress import shown

    with tempfile.TemporaryDirectory(prefix="ddtree-bench-") as folder:
        path = Path(folder) / "synthetic.ddtree.arrow"
        with shown() as progress:
            write_synthetic(path, shape, progress=progress)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", TIMED, str(path)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise ValueError(f"the process that checks ended with status {done.returncode}")
        about = {"layout": shape.layout, "prefix_len": shape.prefix_len, "batch": shape.batch}
        size = path.stat().st_size / MIB
        return {**about, "budget": shape.budget, "file_mib": size, **json.loads(done.stdout)}


def timed_check(path: str) -> None:
    """Read and check one recording as ``ddtree check`` does, in one thread, and print the figures as JSON.

    Keys: ``steps``, ``seconds`` (opening, reading and checking; not the imports), ``cpu_seconds`` (the same while
    nobody else had the core), ``steps_per_second``, ``peak_rss_mib`` (of the whole process), ``findings``, ``checks``
    (that ran).
    """
    import engine.trace  # noqa: F401  not to be timed
    from engine.checks.registry import check_trace
    from workbench.cli.inputs import open_inputs
    from workbench.cli.steps import Steps

    started, used = time.perf_counter(), time.process_time()
    ((name, trace),) = open_inputs([Path(path)])
    if isinstance(trace, Exception):
        raise trace
    with Steps(name.name, trace) as steps:
        report = check_trace(steps)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - used
    figures = {
        "steps": report.steps,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "steps_per_second": report.steps / seconds,
        "peak_rss_mib": _peak_rss() / MIB,
        "findings": len(report.findings) + len(steps.errors),
        "checks": len(report.checks),
    }
    print(json.dumps(figures))


def _peak_rss() -> int:
    """Bytes of memory that this process held at most.

    Linux counts in ``ru_maxrss`` what the process was forked from, so the figure of its own goes before it.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@commands.command()
def acceptance(
    model: Annotated[
        str, typer.Option(help="smollm2, a folder, a GGUF file or a hub id.")
    ] = "smollm2",
    drafter: Annotated[str, typer.Option(help="dflash (bundled), or a DFlash folder.")] = "dflash",
    temperature: float = 0.0,
    new_tokens: Annotated[int, typer.Option(min=2)] = 128,
    most_nodes: Annotated[int, typer.Option(min=1, help="Leave larger trees out.")] = 256,
    device: Device = "cpu",
    dtype: DtypeOption = Dtype.FLOAT32,
    as_json: AsJson = False,
) -> None:
    """Accepted length of a DFlash drafter on the held-out prompts, by real decoding."""
    with one_line_errors():
        from engine.decoding.acceptance_benchmark import SETTINGS, bench_acceptance
        from engine.drafters.catalog import dflash_folder
        from engine.models.dflash_weights import load_dflash
        from engine.training.pipeline import held_out_prompts

        folder = dflash_folder(drafter, model)
        target = load(model, device, dtype)
        figures = bench_acceptance(
            target,
            load_dflash(folder, target.model),
            held_out_prompts(),
            temperature=temperature,
            new_tokens=new_tokens,
            settings=[row for row in SETTINGS if (row[1] or 0) <= most_nodes],
            report=lambda line: typer.echo(line, err=True),
        )
    _print(figures, as_json, _acceptance_lines)


@commands.command()
def drawing(as_json: AsJson = False) -> None:
    """Seconds and bytes to draw a mask of 64 rows and 4096 columns."""
    from workbench.figures.benchmark import bench_mask_drawing

    _print(bench_mask_drawing(), as_json, _table)


def _print(figures: dict[str, Any], as_json: bool, lines: Any) -> None:
    print(json.dumps(figures) if as_json else "\n".join(lines(figures)))


def _decoding_lines(figures: dict[str, Any]) -> list[str]:
    out = ["| method | tokens/s | × transformers | tokens a step | text |"]
    out.append("| --- | --: | --: | --: | --- |")
    for name, row in figures["methods"].items():
        speed, ratio = f"{row['tokens_per_second']:.1f}", f"{row['ratio']:.2f}"
        out.append(f"| {name} | {speed} | {ratio} | {row['tokens_per_step']:.2f} | {row['text']} |")
    share = figures["weight_gb_s"] / figures["read_gb_s"]
    out += [
        "",
        f"Plain decoding reads weights at {figures['weight_gb_s']:.1f} GB/s, {share:.0%} of the "
        f"{figures['read_gb_s']:.1f} GB/s of a matrix-vector product.",
        f"{figures['dtype']} on {figures['device']}.",
    ]
    return out


def _synthetic_lines(figures: dict[str, Any]) -> list[str]:
    out = [
        "| layout | batch | budget | prefix | steps | file MiB | seconds | CPU s | steps/s | peak MiB | findings |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for run in figures["runs"]:
        cells = [run["layout"], run["batch"], run["budget"], run["prefix_len"], run["steps"]]
        cells += [f"{run[name]:.1f}" for name in ("file_mib", "seconds", "cpu_seconds")]
        cells += [f"{run['steps_per_second']:.0f}", f"{run['peak_rss_mib']:.0f}", run["findings"]]
        out.append(f"| {' | '.join(map(str, cells))} |")
    return out


def _acceptance_lines(figures: dict[str, Any]) -> list[str]:
    names = list(figures["mean"])
    out = [f"| prompt | {' | '.join(names)} |", f"| --- |{' --: |' * len(names)}"]
    for prompt, row in [*figures["prompts"].items(), ("**mean**", figures["mean"])]:
        out.append(f"| {prompt} | {' | '.join(f'{row[name]:.2f}' for name in names)} |")
    counts = [figures[key].items() for key in ("same_text", "near_ties")]
    same, ties = (", ".join(f"{count} ({name})" for name, count in row) for row in counts)
    return [
        *out,
        "",
        f"Texts equal to plain decoding's, of {len(figures['prompts'])}: {same}.",
        f"Texts that part from it at a near-tie: {ties}.",
        *(f"- {line}" for line in figures["partings"]),
        f"{figures['dtype']} on {figures['device']}.",
    ]


def _table(figures: dict[str, Any]) -> list[str]:
    rows = [f"| {name} | {_number(value)} |" for name, value in figures.items()]
    return ["| figure | value |", "| --- | --: |", *rows]


def _number(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value}"
