"""``ddtree isolate``: a matrix of settings, each compared with plain decoding, and the one that the fault hangs on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.device import Device, Dtype, DtypeOption
from workbench.cli.failures import one_line_errors
from workbench.cli.text import json_line, printable

if TYPE_CHECKING:
    from engine.isolate.store import Store
    from engine.isolate.verdict import Pair, Verdict

BLAMED, INTERRUPTED = 1, 130


class Graphs(StrEnum):
    """Whether steps are replayed from graphs."""

    BOTH = "both"
    ON = "on"
    OFF = "off"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(isolate)


def isolate(
    budget: Annotated[
        list[int] | None, typer.Option(help="Again for more. Default: 7 and 16.")
    ] = None,
    topk: Annotated[list[int] | None, typer.Option(help="0: no cap. Default: 1 and 4.")] = None,
    graphs: Annotated[Graphs, typer.Option(help="Graphs on, off, or both.")] = Graphs.BOTH,
    batch: Annotated[
        list[int] | None, typer.Option(help="Prompts at a time. Default: 1 and 2.")
    ] = None,
    prompt: Annotated[list[str] | None, typer.Option(help="Again for more; default: two.")] = None,
    each_prompt: Annotated[
        bool,
        typer.Option(
            "--each-prompt", help="With --prompt: a cell for each, not for the first alone."
        ),
    ] = False,
    temperature: Annotated[list[float] | None, typer.Option(help="Default: 0.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Default: 0.")] = None,
    max_new_tokens: Annotated[int, typer.Option()] = 32,
    model: Annotated[str, typer.Option(help="As in ddtree run.")] = "smollm2",
    drafter: Annotated[str, typer.Option(help="As in ddtree run.")] = "dflash",
    accuracy: Annotated[float, typer.Option(help="Of the oracle drafter, 0 … 1.")] = 0.9,
    block_size: Annotated[int, typer.Option(help="The drafter's block.")] = 8,
    spine: Annotated[
        bool, typer.Option(help="The chain of best tokens is always in the tree.")
    ] = False,
    captured_bs: Annotated[
        int | None, typer.Option(help="With graphs: the captured batch size.")
    ] = None,
    fault: Annotated[str | None, typer.Option(help="Break the engine on purpose.")] = None,
    backend: Annotated[str, typer.Option(help="As in ddtree run.")] = "addressed",
    device: Device = "cpu",
    dtype: DtypeOption = Dtype.FLOAT32,
    checks: Annotated[
        bool, typer.Option(help="Record each cell and check it; off: behaviour alone.")
    ] = True,
    server: Annotated[
        str | None,
        typer.Option(
            help="Instead of the local engine: the command that starts a server. {budget}, {width} (budget + 1), "
            "{topk} (the budget where there is no cap), {port} (of --url, with --ahead those after it too) and "
            "{traces} are filled in; {eager} becomes --eager-words without graphs."
        ),
    ] = None,
    plain_server: Annotated[
        str | None, typer.Option(help="The command that starts the same model without speculation.")
    ] = None,
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:30000",
    eager_words: Annotated[
        str, typer.Option(help="What {eager} becomes.")
    ] = "--disable-cuda-graph",
    environment: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE for the server; again for more.")
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds a start may take.")] = 900.0,
    ahead: Annotated[
        int,
        typer.Option(
            help="Servers that load while others are asked; each needs its memory, and may slow what is timed. "
            "They listen on the ports after that of --url. With --ray: none."
        ),
    ] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds of one answer.")] = 300.0,
    tie: Annotated[
        float | None,
        typer.Option(
            help="Log-probabilities of a server that lie closer are a near-tie; 0.25. With --resume: judge by another."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: a new one here.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the experiment in this folder; other options are in it."),
    ] = None,
    repeat: Annotated[
        Path | None, typer.Option(help="The experiment of this folder again, in a new one.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: failed cells are measured again.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would run and how long, and end.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster (host:port); local: one of this machine."),
    ] = None,
    gpus: Annotated[float, typer.Option(help="With --ray: GPUs of a cell.")] = 0.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="The verdict as one JSON object.")
    ] = False,
) -> None:
    """Vary one thing at a time, compare each text with plain decoding, and name the factor that a fault hangs on.

    Exit status 0: nothing is blamed; 1: something is broken; 2: a wrong call; 130: stopped (go on with --resume).
    """
    with one_line_errors():
        from engine.isolate.experiment import ServerSubject
        from workbench.cli import isolate_setup as setup

        if resume is not None or repeat is not None or retry_failed:
            setup.check_tie(tie, repeat)
            store = setup.known(resume, repeat, out, keep=not plan, retry=retry_failed)
            if tie is not None:
                store.retie(tie)
        else:
            subject = (
                setup.local(
                    model=model,
                    drafter=drafter,
                    accuracy=accuracy,
                    block_size=block_size,
                    spine=spine,
                    captured_bs=captured_bs,
                    fault=fault,
                    backend=backend,
                    device=device,
                    dtype=str(dtype),
                    checks=checks,
                )
                if server is None
                else setup.server(
                    server,
                    plain_server,
                    url=url,
                    block_size=block_size,
                    eager_words=eager_words,
                    environment=environment or [],
                    patience=patience,
                    ahead=ahead,
                    timeout=timeout,
                    tie=ServerSubject.tie if tie is None else tie,
                )
            )
            matrix = setup.matrix(
                budget=budget,
                topk=topk,
                graphs=str(graphs),
                batch=batch,
                prompt=prompt,
                each_prompt=each_prompt,
                temperature=temperature,
                seed=seed,
                max_new_tokens=max_new_tokens,
            )
            store = setup.new(matrix, subject, None if plan else out, keep=not plan)
        if plan:
            print(printable(setup.planned(store)))
            return
        raise typer.Exit(_run(store, ray, gpus, as_json))


def _run(store: Store, ray: str | None, gpus: float, as_json: bool) -> int:
    from engine.isolate.judge import judge
    from engine.isolate.plan import plan_of
    from engine.isolate.verdict import Kind
    from workbench.isolate_words import lines_of

    print(printable(f"{store.folder}: {plan_of(store.experiment, store.results)}"), file=sys.stderr)
    stopped = False
    try:
        _measure(store, ray, gpus)
    except KeyboardInterrupt:
        print(f"\nstopped; go on with: ddtree isolate --resume {store.folder}", file=sys.stderr)
        stopped = True
    verdict = judge(store.experiment, store.results.values())
    if as_json:
        print(json_line({"folder": str(store.folder), **plain_verdict(verdict)}))
    else:
        lines = lines_of(store.experiment, store.results, verdict)
        told = [" ".join(line.split("\n")) for line in lines]  # a server's last words have lines
        print("\n".join(map(printable, [*told, "", f"results in {store.folder}"])))
    sys.stdout.flush()
    if stopped:
        return INTERRUPTED
    blamed = (Kind.WRONG, Kind.FAILED, Kind.SLOW, Kind.LATENT)
    return BLAMED if verdict.kind in blamed else 0


def _measure(store: Store, ray: str | None, gpus: float) -> None:
    """Every cell that is left; on a terminal with a bar, elsewhere a line a cell."""
    from engine.isolate.lab import Started, run_lab
    from engine.isolate.on_ray import run_on_ray
    from engine.isolate.plan import duration
    from workbench.cli.progress import shown

    with shown() as progress:
        cell = {"words": "", "share": 0.0, "each": 1.0}

        def report(words: str, fraction: float) -> None:
            if sys.stderr.isatty():
                progress(f"{cell['words']} · {words}", cell["share"] + fraction * cell["each"])

        events = (
            run_lab(store, report)
            if ray is None
            else run_on_ray(store, report, address=None if ray == "local" else ray, num_gpus=gpus)
        )
        for event in events:
            if isinstance(event, Started):
                left = event.seconds_left
                time = "" if left is None else f", about {duration(left)} left"
                cell["words"] = f"{event.number + 1} of {event.total}{time}: {event.cell.key}"
                cell["share"], cell["each"] = event.number / event.total, 1 / event.total
                progress(cell["words"], cell["share"])


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON values; cells by their keys."""

    def pairs(found: Sequence[Pair]) -> list[dict[str, str]]:
        return [
            {"factor": str(p.factor), "broken": p.broken.key, "other": p.other.key} for p in found
        ]

    return {
        "kind": str(verdict.kind),
        "sentence": verdict.sentence,
        "factors": [str(factor) for factor in verdict.factors],
        "condition": verdict.condition,
        "path": verdict.path,
        "proof": pairs(verdict.proof),
        "without_effect": pairs(verdict.without_effect),
        "missing": [cell.key for cell in verdict.missing],
        "cause": verdict.cause,
    }
