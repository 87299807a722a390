"""All that ``ddtree bench gpu`` measures, in one process on one card, and its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import engine
from engine.graphs.bench import attention, steps, trees
from engine.graphs.bench.timing import copy_rate, matrix_rate
from engine.models.catalog import Target
from engine.models.device import described
from engine.models.dflash import DFlash
from engine.xray.errors import XRayError
from engine.xray.sglang_kernel import load_sglang

Report = Callable[[str], None]


def bench_kernels(sglang_path: Path | None, report: Report) -> dict[str, Any]:
    """Attention beside SGLang's kernel where it can be had, tree building, walk and compaction.

    ``sglang``: its version, or why it was not measured.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    rates = copy_rate(), matrix_rate()
    try:
        theirs = load_sglang(sglang_path, cuda=True)
        kernel, version = theirs.extend_attention_fwd, theirs.version
    except XRayError as error:
        kernel, version = None, f"not measured: {error}"
    rows = []
    for shape in attention.SHAPES:
        report(f"attention {shape.batch} x {shape.prefix} x {shape.rows}")
        rows.append(attention.measure(shape, *rates, kernel))
    report("trees, walk, compaction")
    return {
        "engine": engine.__version__,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": described(device),
        "copy_bytes_per_second": rates[0],
        "matrix_operations_per_second": rates[1],
        "sglang": version,
        "attention": rows,
        "building": [trees.measure_building(batch) for batch in (1, 8)],
        "walk": trees.measure_walk(),
    }


def bench_steps(
    load: Callable[[torch.dtype], tuple[Target, DFlash]],
    prompts: Sequence[str],
    *,
    new_tokens: int,
    rounds: int,
    report: Report,
) -> dict[str, Any]:
    """Whole steps in bfloat16, and the texts of one round in float32, which must be plain decoding's."""
    found: dict[str, Any] = {"new_tokens": new_tokens, "prompts": len(prompts)}
    for name, dtype, times in (
        ("bfloat16", torch.bfloat16, rounds),
        ("float32", torch.float32, 1),
    ):
        target, drafter = load(dtype)
        found[name] = steps.bench_steps(
            target,
            drafter,
            prompts,
            new_tokens=new_tokens,
            rounds=times,
            eager=dtype is torch.bfloat16,
            report=lambda line, name=name: report(f"{name}: {line}"),  # type: ignore[misc]
        )
    return found
