"""The figures of ``ddtree bench gpu`` as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def lines(figures: dict[str, Any]) -> Iterator[str]:
    """One line after the other; sections that were not measured are left out."""
    yield f"Measured {figures['when']} on {figures['device']}, engine {figures['engine']}."
    yield (
        f"Copy {figures['copy_bytes_per_second'] / 1e12:.2f} TB/s, matrix product "
        f"{figures['matrix_operations_per_second'] / 1e12:.0f} TFLOP/s (bfloat16). SGLang: {figures['sglang']}."
    )
    yield ""
    yield from _attention(figures["attention"])
    yield from _trees(figures["building"], figures["walk"])
    if "steps" in figures:
        yield from _steps(figures["steps"])


def _attention(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Tree-verify attention, bfloat16, µs a call under graph replay (medians)"
    yield ""
    yield "| batch | prefix | rows | heads | dim | SGLang | ours | cold | floor | SGLang / ours | error | SGLang's |"
    yield "| " + " | ".join(["--:"] * 12) + " |"
    for row in rows:
        theirs = [
            f"{row[name]:{form}}" if name in row else "–"
            for name, form in (("sglang_us", ".1f"), ("ratio", ".1f"), ("sglang_error", ".4f"))
        ]
        cells = [
            *(str(row[name]) for name in ("batch", "prefix", "rows")),
            f"{row['heads']}/{row['kv_heads']}",
            str(row["dim"]),
            theirs[0],
            *(f"{row[name]:.1f}" for name in ("ours_us", "ours_rotated_us", "floor_us")),
            theirs[1],
            f"{row['ours_error']:.4f}",
            theirs[2],
        ]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield (
        "Error: relative, against float64. Cold: inputs of 150 MB in turn. Floor: bytes over the copy rate, or the "
        "products over the matrix rate, whichever is larger."
    )
    yield ""


def _trees(building: list[dict[str, Any]], walk: dict[str, Any]) -> Iterator[str]:
    yield "## Trees of 64 nodes from logits [batch, 15, 151936], µs"
    yield ""
    yield "| batch | device | best tokens | search, links | host's heap, with the copy | host / device | same trees |"
    yield "| --: | --: | --: | --: | --: | --: | --: |"
    for row in building:
        parts = (row[name] for name in ("device_us", "best_tokens_us", "grow_us", "host_us"))
        numbers = " | ".join(f"{part:.1f}" for part in parts)
        yield f"| {row['batch']} | {numbers} | {row['ratio']:.1f} | {row['same_trees']} of {row['batch']} |"
    yield ""
    moves = [
        f"compaction of {name.removeprefix('compact_').removesuffix('_us')} {spent:.1f}"
        for name, spent in walk.items()
        if name.startswith("compact_")
    ]
    accepted = sum(walk["accepted"]) / len(walk["accepted"])
    yield (
        f"Batch {walk['batch']}, {accepted:.1f} nodes accepted a request: walk {walk['walk_us']:.1f} µs, "
        + ", ".join(f"{move} µs" for move in moves)
        + " (layers x KV heads x head_dim)."
    )
    yield ""


def _steps(steps: dict[str, Any]) -> Iterator[str]:
    found = steps["bfloat16"]
    yield (
        f"## Whole steps, bfloat16, greedy, batch 1, {steps['prompts']} held-out prompts, "
        f"{steps['new_tokens']} tokens"
    )
    yield ""
    yield "| method | tokens/s | with prefill | tokens a step | µs a step | ratio to plain in graphs |"
    yield "| --- | --: | --: | --: | --: | --: |"
    for name, row in found["methods"].items():
        yield (
            f"| {name} | {row['tokens_per_second']:.0f} | {row['with_prefill']:.0f} | {row['tokens_per_step']:.2f} | "
            f"{row['step_us']:.0f} | {row['ratio_to_plain']:.2f} |"
        )
    yield ""
    yield from _budget(found["budget"])
    yield from _losslessness(steps)


def _budget(budget: dict[str, dict[str, float]]) -> Iterator[str]:
    stages = list(dict.fromkeys(stage for spent in budget.values() for stage in spent))
    yield (
        "Where a step's time goes, µs of each stage under graph replay (commit: of a step that accepts nothing):"
    )
    yield ""
    yield "| | " + " | ".join(stages) + " |"
    yield "| --- |" + " --: |" * len(stages)
    for name, spent in budget.items():
        cells = [f"{spent[stage]:.0f}" if stage in spent else "–" for stage in stages]
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""


def _losslessness(steps: dict[str, Any]) -> Iterator[str]:
    yield "Texts beside plain decoding's in graphs, same prompts, same width:"
    yield ""
    for width in ("float32", "bfloat16"):
        found = steps[width]
        texts = found["texts"] * (len(found["methods"]) - 1)
        apart = found["partings"]
        if not apart:
            yield f"- {width}: {texts} of {texts} equal, token by token."
            continue
        near = [row for row in apart if row["near_tie"]]
        margins = sorted(abs(row["margin"]) for row in apart)
        yield (
            f"- {width}: {texts - len(apart)} of {texts} equal; {len(near)} part at a near-tie, "
            f"{len(apart) - len(near)} elsewhere. Margins of the parting tokens, in logits: "
            f"median {margins[len(margins) // 2]:.3g}, largest {margins[-1]:.3g}."
        )
    yield ""
