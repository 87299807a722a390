"""Tokens a second of plain, chain and tree decoding beside transformers' ``generate``: one process, in turn.

Chains and trees draft with the bundled DFlash drafter unless told otherwise; its time counts. Every text is compared
with plain decoding's before its time counts: in float32 it must be the same, in bfloat16 figures say where it parts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from engine.decoding.accept import Sampler
from engine.decoding.engine import Engine
from engine.decoding.parting import parting
from engine.decoding.plain import decode_plain
from engine.decoding.settings import EngineConfig
from engine.drafters.catalog import make_drafter
from engine.models.benchmark import read_bandwidth, transformers_run, weight_bytes
from engine.models.catalog import Target
from engine.models.device import described, synchronize
from engine.models.progress import ProgressFn, report

PROMPT = "Write a Python quicksort with comments."
# Name, block size, budget, top-k.
DRAFTED: tuple[tuple[str, int, int, int | None], ...] = (
    ("chain, block 8", 8, 7, 1),
    ("tree 16, top-k 4, block 8", 8, 16, 4),
    ("chain, block 16", 16, 15, 1),
    ("tree 16, block 16", 16, 16, None),
    ("tree 32, block 16", 16, 32, None),
    ("tree 64, block 16", 16, 64, None),
)


@dataclass(frozen=True)
class Run:
    """One method's output: tokens, and steps of the target for them."""

    tokens: list[int]
    steps: int


def bench_decoding(
    target: Target,
    *,
    new_tokens: int = 128,
    rounds: int = 3,
    drafter: str = "dflash",
    progress: ProgressFn | None = None,
) -> dict[str, Any]:
    """Greedy decoding where and as the target was loaded, batch 1.

    Keys: ``methods`` (name -> tokens_per_second, tokens_per_step, ratio to transformers; medians over rounds; text:
    same, or where it parts from plain decoding's), ``weight_gb_s`` (weight bytes times plain tokens a second),
    ``read_gb_s`` (a matrix-vector product over 1 GiB), ``new_tokens``, ``threads``, ``device`` (with versions),
    ``dtype``. Raises ``RuntimeError`` if a float32 text is not plain decoding's.
    """
    model, prompt = target.model, target.tokenizer.encode_chat(PROMPT)
    with without_progress_bars():
        generate = transformers_run(
            target.folder, prompt, new_tokens, dtype=model.dtype, device=model.device
        )
    runs: dict[str, Callable[[], Run]] = {
        "transformers": lambda: Run(generate(), new_tokens),
        "plain": lambda: _plain(target, prompt, new_tokens),
    }
    for name, block_size, budget, topk in DRAFTED:
        config = EngineConfig(
            budget=budget,
            topk=topk,
            block_size=block_size,
            max_context=len(prompt) + new_tokens + budget + 1,
            max_requests=1,
        )
        runs[name] = partial(_drafted, target, prompt, new_tokens, config, drafter)
    outputs = {name: run() for name, run in runs.items()}  # also the warm-up
    texts = {name: _compared(target, name, prompt, outputs) for name in outputs}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for done in range(rounds):
        for place, (name, run) in enumerate(runs.items()):
            report(progress, f"Measuring {name}", (done + place / len(runs)) / rounds)
            synchronize(model.device)
            started = time.perf_counter()
            run()
            synchronize(model.device)
            seconds[name].append(time.perf_counter() - started)
    return _figures(target, outputs, texts, seconds, new_tokens)


def _compared(target: Target, name: str, prompt: list[int], outputs: dict[str, Run]) -> str:
    apart = parting(target.model, prompt, outputs["plain"].tokens, outputs[name].tokens)
    if apart is not None and target.model.dtype is torch.float32:
        raise RuntimeError(f"bench: the text of {name} is not plain decoding's: it {apart}")
    return "same" if apart is None else str(apart)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars of its own; the switch is put back."""
    from transformers.utils import logging  # slow to import

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _plain(target: Target, prompt: list[int], count: int) -> Run:
    tokens = list(decode_plain(target.model, "r0", prompt, count, sampler=Sampler()))
    return Run(tokens, count)


def _drafted(target: Target, prompt: list[int], count: int, config: EngineConfig, name: str) -> Run:
    drafter = make_drafter(
        name,
        target,
        config.block_size,
        accuracy=0.9,
        sampler=config.sampler,
        max_context=config.max_context + config.block_size,
    )
    engine = Engine(target.model, drafter, config)
    state = engine.add("r0", prompt, count)
    steps = 1
    while engine.running:
        engine.step()
        steps += 1
    return Run(state.output, steps)


def _figures(
    target: Target,
    outputs: dict[str, Run],
    texts: dict[str, str],
    seconds: dict[str, list[float]],
    count: int,
) -> dict[str, Any]:
    base = seconds["transformers"]
    methods = {
        name: {
            "tokens_per_second": count / statistics.median(spent),
            "tokens_per_step": count / outputs[name].steps,
            "ratio": statistics.median(b / s for b, s in zip(base, spent, strict=True)),
            "text": texts[name],
        }
        for name, spent in seconds.items()
    }
    plain = count / statistics.median(seconds["plain"])
    return {
        "methods": methods,
        "weight_gb_s": weight_bytes(target.model) * plain / 1e9,
        "read_gb_s": read_bandwidth(target.model.device),
        "new_tokens": count,
        "threads": torch.get_num_threads(),
        "device": described(target.model.device),
        "dtype": str(target.model.dtype).removeprefix("torch."),
    }
