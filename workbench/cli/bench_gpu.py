"""``ddtree bench gpu``: kernels and whole steps on this machine's GPU, one table as Markdown and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.device import Dtype, load
from workbench.cli.failures import one_line_errors

if TYPE_CHECKING:
    import torch

    from engine.models.catalog import Target
    from engine.models.dflash import DFlash


def gpu(
    model: Annotated[
        str, typer.Option(help="smollm2, a folder, a GGUF file or a hub id.")
    ] = "smollm2",
    drafter: Annotated[str, typer.Option(help="dflash (bundled), or a DFlash folder.")] = "dflash",
    sglang_path: Annotated[
        Path | None, typer.Option(help="An unpacked SGLang wheel; default: the installed package.")
    ] = None,
    kernels_only: Annotated[bool, typer.Option(help="Load no model.")] = False,
    new_tokens: Annotated[int, typer.Option(min=2)] = 128,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    out: Annotated[
        Path | None, typer.Option(help="A folder for gpu.md and gpu.json; default: print only.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of Markdown.")] = False,
) -> None:
    """Attention beside SGLang's kernel, tree building, walk, and tokens a second of whole steps in CUDA graphs."""
    with one_line_errors():
        from engine.drafters.catalog import dflash_folder
        from engine.models.device import find_device

        find_device("cuda")  # said before anything is imported that needs one
        if out is not None and not out.is_dir():
            raise ValueError(f"out: expected a folder, found {out}")
        folder = None if kernels_only else dflash_folder(drafter, model)
        from engine.graphs.bench.all import bench_kernels, bench_steps
        from engine.graphs.bench.table import lines
        from engine.models.dflash_weights import load_dflash
        from engine.training.pipeline import held_out_prompts

        def report(line: str) -> None:
            typer.echo(line, err=True)

        def loaded(dtype: torch.dtype) -> tuple[Target, DFlash]:
            assert folder is not None
            target = load(model, "cuda", Dtype(str(dtype).removeprefix("torch.")))
            return target, load_dflash(folder, target.model)

        figures = bench_kernels(sglang_path, report)
        if folder is not None:
            figures["steps"] = bench_steps(
                loaded, held_out_prompts(), new_tokens=new_tokens, rounds=rounds, report=report
            )
        text = "\n".join(lines(figures))
        if out is not None:
            (out / "gpu.md").write_text(text + "\n", encoding="utf-8")
            (out / "gpu.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    typer.echo(json.dumps(figures, indent=1) if as_json else text)
