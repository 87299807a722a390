"""Accepted length by real decoding: every setting on the held-out prompts, compared with plain decoding."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from engine.decoding.accept import Sampler
from engine.decoding.engine import Engine
from engine.decoding.parting import parting
from engine.decoding.plain import decode_plain
from engine.decoding.settings import EngineConfig
from engine.drafters.dflash import DFlashDrafter
from engine.models.catalog import Target
from engine.models.device import described
from engine.models.dflash import DFlash

# Name, nodes (None: a chain as long as the block), top-k.
SETTINGS: tuple[tuple[str, int | None, int | None], ...] = (
    ("chain", None, 1),
    ("16, top 4", 16, 4),
    ("16", 16, None),
    ("32", 32, None),
    ("64", 64, None),
    ("256", 256, None),
)


def bench_acceptance(
    target: Target,
    model: DFlash,
    prompts: Sequence[str],
    *,
    temperature: float = 0.0,
    seed: int = 0,
    new_tokens: int = 128,
    block_size: int | None = None,
    settings: Sequence[tuple[str, int | None, int | None]] = SETTINGS,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Settings are (name, nodes, top-k); nodes None: a chain as long as the block.

    Returns ``{"prompts": {prompt: {setting: tokens a step}}, "mean": {setting: …}, "same_text": {setting: count},
    "near_ties": {setting: count}, "partings": [text], "temperature": …, "device": …, "dtype": …}``. Tokens a step: what
    verify steps emitted, the bonus included, over their number; the prompt's own first token is not counted.
    ``same_text``: prompts whose text equals plain decoding's with the same seed, token by token; ``near_ties``:
    those that part from it where rounding explains it; ``partings``: all that part, in words.
    """
    size = block_size or model.config.block_size
    sampler, stop = Sampler(temperature, seed), target.model.config.eos_token_ids
    chats = [target.tokenizer.encode_chat(prompt) for prompt in prompts]
    plain = [
        list(decode_plain(target.model, "r", chat, new_tokens, sampler=sampler, stop=stop))
        for chat in chats
    ]
    rows: dict[str, dict[str, float]] = {prompt: {} for prompt in prompts}
    same: dict[str, int] = {}
    ties: dict[str, int] = {}
    partings: list[str] = []
    for name, nodes, topk in settings:
        budget = size - 1 if nodes is None else nodes
        same[name] = ties[name] = 0
        for prompt, chat, text in zip(prompts, chats, plain, strict=True):
            config = EngineConfig(
                budget=budget,
                topk=topk,
                block_size=size,
                sampler=sampler,
                max_context=len(chat) + new_tokens + budget + 1,
                max_requests=1,
                stop=stop,
            )
            engine = Engine(
                target.model, DFlashDrafter(model, target.model, block_size=size), config
            )
            state, steps = engine.add("r", chat, new_tokens), 0
            while engine.running:
                engine.step()
                steps += 1
            same[name] += state.output == text
            rows[prompt][name] = (len(state.output) - 1) / max(steps, 1)
            if state.output != text:
                apart = parting(target.model, chat, text, state.output, sampler, "r")
                ties[name] += apart is not None and apart.near_tie
                partings.append(f"{name}: {prompt[:40]} {apart or 'has another length'}")
        report(f"{name}: {statistics.mean(row[name] for row in rows.values()):.2f}")
    means = {name: statistics.mean(row[name] for row in rows.values()) for name in same}
    return {
        "prompts": rows,
        "mean": means,
        "same_text": same,
        "near_ties": ties,
        "partings": partings,
        "temperature": temperature,
        "device": described(target.model.device),
        "dtype": str(target.model.dtype).removeprefix("torch."),
    }
