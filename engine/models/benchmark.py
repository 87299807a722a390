"""bench_plain: plain decoding of a folder by this decoder and by transformers, and the memory's
share of it.

Decoding one row reads every weight once, so weight bytes times tokens a second is a read bandwidth;
the measured bandwidth of a large matrix-vector product stands beside it. Both decoders run in this
process, in turn, on the same folder, prompt and threads; figures are medians over rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.models.causal import generate_plain
from engine.models.decoder import Decoder
from engine.models.device import HOST, synchronize
from engine.models.naming import named_views
from engine.models.progress import ProgressFn, report
from engine.models.tokenizer import Tokenizer
from engine.models.weights import load_decoder

PROMPT = "Write a short story about a lighthouse keeper."
BANDWIDTH_SHAPE = (1024, 1 << 18)  # float32, 1 GiB: far beyond any cache
BANDWIDTH_ROUNDS = 5


def bench_plain(
    folder: Path, *, new_tokens: int = 64, rounds: int = 3, progress: ProgressFn | None = None
) -> dict[str, Any]:
    """Measure greedy float32 decoding on the CPU, batch 1.

    Keys: ``ours`` and ``transformers`` (tokens a second, a round each), ``ratio`` (ours over
    transformers, median of the rounds), ``same_tokens``, ``new_tokens``, ``threads``, ``linear`` (a
    LinearKind value), ``weight_bytes``, ``weight_gb_s`` (of ours) and ``read_gb_s``. Raises
    ValueError as load_decoder does.
    """
    model = load_decoder(folder)
    prompt = Tokenizer(folder).encode_chat(PROMPT)
    runs = {
        "ours": lambda: list(generate_plain(model, prompt, new_tokens)),
        "transformers": transformers_run(folder, prompt, new_tokens),
    }
    speeds, outputs = _alternate(runs, rounds, new_tokens, progress)
    ours = statistics.median(speeds["ours"])
    ratios = [own / other for own, other in zip(*speeds.values(), strict=True)]
    read_bytes = weight_bytes(model)
    return {
        **speeds,
        "ratio": statistics.median(ratios),
        "same_tokens": outputs["ours"] == outputs["transformers"],
        "new_tokens": new_tokens,
        "threads": torch.get_num_threads(),
        "linear": model.linear_kind.value,
        "weight_bytes": read_bytes,
        "weight_gb_s": read_bytes * ours / 1e9,
        "read_gb_s": read_bandwidth(),
    }


def read_bandwidth(device: torch.device = HOST) -> float:
    """GB/s of reading a 1 GiB float32 matrix once in a matrix-vector product; best of five."""
    matrix = torch.ones(BANDWIDTH_SHAPE, device=device)
    vector = torch.ones(BANDWIDTH_SHAPE[1], device=device)

    def product() -> None:
        torch.mv(matrix, vector)
        synchronize(device)

    product()  # not to be timed: libraries load
    seconds = [_seconds(product)[0] for _ in range(BANDWIDTH_ROUNDS)]
    return matrix.nbytes / min(seconds) / 1e9


def weight_bytes(model: Decoder) -> int:
    """Bytes read a token: every weight once. A tied head is read as the head; one embedding row is
    not counted.
    """
    views = named_views(model)
    untied = 0 if model.config.tie_word_embeddings else model.embedding.nbytes
    return sum(view.nbytes for view in views.values()) - untied


def transformers_run(
    folder: Path,
    prompt: list[int],
    count: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device = HOST,
) -> Callable[[], list[int]]:
    """A call that decodes ``count`` tokens greedily with transformers' ``generate``."""
    from transformers import AutoModelForCausalLM  # slow to import

    model = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=dtype, local_files_only=True
    ).eval()
    model.to(device)
    ids = torch.tensor([prompt], device=device)
    model.generation_config.eos_token_id = None  # both decoders run on past any end token
    options = {"max_new_tokens": count, "do_sample": False}

    def run() -> list[int]:
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **options
            )
        return [int(i) for i in out[0, len(prompt) :]]

    return run


def _alternate(
    runs: dict[str, Callable[[], list[int]]], rounds: int, count: int, progress: ProgressFn | None
) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Tokens a second of each run in each round, after one round that isn't counted, and its
    output.
    """
    outputs = {name: run() for name, run in runs.items()}
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for done in range(rounds):
        report(progress, "Measuring plain decoding", done / rounds)
        for name, run in runs.items():
            seconds, output = _seconds(run)
            assert len(output) == count, (name, len(output), count)
            speeds[name].append(count / seconds)
    return speeds, outputs


def _seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result
