"""``ddtree train-drafter``: a DFlash drafter for a target, from nothing but the target."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.failures import one_line_errors

if TYPE_CHECKING:
    from engine.training.make_corpus import CorpusProgress
    from engine.training.train import Figures

STOPPED = 3  # exit status of a run that is out of time and can be taken up again


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="train-drafter")(train_drafter)


def train_drafter(
    folder: Annotated[Path, typer.Argument(help="Corpus, state and the drafter go here.")],
    model: Annotated[
        str, typer.Option(help="smollm2, a folder, a GGUF file or a hub id.")
    ] = "smollm2",
    layers: Annotated[int, typer.Option(min=1, help="Layers of the drafter.")] = 3,
    block_size: Annotated[int, typer.Option(min=2, help="Root and draft positions.")] = 16,
    features: Annotated[int, typer.Option(min=1, help="Layers of the target it reads.")] = 5,
    mask_token: Annotated[
        int | None, typer.Option(help="Token id; default: one the answers never hold.")
    ] = None,
    bits: Annotated[int, typer.Option(help="16, or 8 with scales.")] = 16,
    self_prompts: Annotated[
        int, typer.Option(min=0, help="Prompts that the target writes itself.")
    ] = 60_000,
    seed_prompts: Annotated[int, typer.Option(min=0, help="Prompts from the templates.")] = 40_000,
    answer_tokens: Annotated[int, typer.Option(min=2, help="Longest answer.")] = 320,
    data_minutes: Annotated[
        float | None, typer.Option(help="Stop answering after so many minutes.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Answers generated at a time.")] = 2048,
    steps: Annotated[
        int, typer.Option(min=1, help="Training steps, where no minutes are given.")
    ] = 4000,
    minutes: Annotated[
        float | None, typer.Option(help="Train so long instead of a number of steps.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences a step.")] = 64,
    anchors: Annotated[int, typer.Option(min=1, help="Blocks a sequence.")] = 64,
    weighting: Annotated[str, typer.Option(help="exp or d-pace.")] = "exp",
    gamma: Annotated[float, typer.Option(help="exp weights fall by e every so many places.")] = 7.0,
    optimizer: Annotated[str, typer.Option(help="adamw or muon.")] = "adamw",
    lr: Annotated[float, typer.Option(help="Highest learning rate.")] = 6e-4,
    weight_decay: Annotated[float, typer.Option(help="Of the optimizer.")] = 0.01,
    compiled: Annotated[bool, typer.Option(help="Compile the drafter's layers first.")] = False,
    seed: Annotated[int, typer.Option(help="Of prompts, batches and first weights.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    budget_seconds: Annotated[
        float | None,
        typer.Option(help="Save and leave after so long; the same command goes on later."),
    ] = None,
) -> None:
    """Make prompts and greedy answers with the target, train, and measure acceptance on held-out prompts.

    The same command goes on where an interrupted one stopped; with other training options it is refused. The bundled
    drafter's own command is in its model card.
    """
    started = time.monotonic()
    with one_line_errors():
        import torch

        from engine.models.catalog import load_target
        from engine.training.loss import Weighting
        from engine.training.make_corpus import CorpusSettings
        from engine.training.pipeline import DrafterSettings
        from engine.training.pipeline import train_drafter as train
        from engine.training.train import TrainSettings
        from workbench.cli.progress import shown

        one_of("weighting", weighting, "exp", "d-pace")
        one_of("optimizer", optimizer, "adamw", "muon")
        one_of("dtype", dtype, "float32", "bfloat16")
        one_of("bits", bits, 16, 8)
        settings = DrafterSettings(
            num_layers=layers,
            block_size=block_size,
            features=features,
            mask_token_id=mask_token,
            bits=bits,
            corpus=CorpusSettings(
                self_prompts=self_prompts,
                seed_prompts=seed_prompts,
                max_answer_tokens=answer_tokens,
                minutes=data_minutes,
                rows=rows,
                seed=seed,
            ),
            train=TrainSettings(
                steps=steps,
                minutes=minutes,
                batch=batch,
                anchors=anchors,
                weighting=Weighting(weighting, gamma),  # type: ignore[arg-type]
                optimizer=optimizer,  # type: ignore[arg-type]
                lr=lr,
                weight_decay=weight_decay,
                seed=seed,
                compiled=compiled,
            ),
        )
        with shown() as progress:
            target = load_target(
                model, dtype=getattr(torch, dtype), device=device, progress=progress
            )
        until = None if budget_seconds is None else started + budget_seconds
        figures = train(target, folder, settings, report=_report, until=until)
    if figures is None:
        print(f"Out of time; the same command goes on from {folder}.")
        raise typer.Exit(STOPPED)
    print(f"The drafter is in {folder / 'drafter'}.")
    print("| setting | accepted length, by real decoding | on the target's own texts |")
    print("| --- | --: | --: |")
    for name, mean in figures["decoded"]["mean"].items():
        print(f"| {name} | {mean:.2f} | {figures['followed']['mean'][name]:.2f} |")


def one_of(name: str, found: object, *expected: object) -> None:
    """Raises ``ValueError`` for a choice that is not there."""
    if found not in expected:
        raise ValueError(f"{name}: expected {' or '.join(map(str, expected))}, found {found}")


def _report(figures: CorpusProgress | Figures) -> None:
    """One line on standard error."""
    if hasattr(figures, "stage"):
        speed = figures.answer_tokens / max(figures.seconds, 1e-9)
        line = (
            f"{figures.stage}: {figures.done} of {figures.total}, {figures.answer_tokens:,} answer tokens, "
            f"{speed:,.0f}/s, {figures.seconds:.0f} s"
        )
    else:
        by_place = " ".join(f"{100 * share:.0f}" for share in figures.accuracy)
        kind = "validation" if figures.validation else f"{100 * figures.share:.0f} %"
        line = (
            f"step {figures.step} ({kind}), {figures.seconds:.0f} s: loss {figures.loss:.3f}, chain "
            f"{figures.accepted:.3f}, right by place {by_place} %"
        )
    typer.echo(line, err=True)
