"""Tokens a second of whole steps on the device: plain and DDTree, in CUDA graphs and without, on the same prompts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.decoding.parting import Parting, parting
from engine.decoding.settings import EngineConfig
from engine.graphs.bench.timing import replayed
from engine.graphs.choices import choices
from engine.graphs.engine import GraphEngine
from engine.graphs.step import DeviceStep
from engine.models.catalog import Target
from engine.models.dflash import DFlash

# Name, nodes (None: plain decoding), top-k, in CUDA graphs.
METHODS: tuple[tuple[str, int | None, int | None, bool], ...] = (
    ("plain, graphs", None, None, True),
    ("plain, eager", None, None, False),
    ("chain 15, graphs", 15, 1, True),
    ("DDTree 16, graphs", 16, None, True),
    ("DDTree 32, graphs", 32, None, True),
    ("DDTree 64, graphs", 64, None, True),
    ("DDTree 64, eager", 64, None, False),
)


@dataclass
class _Method:
    engine: GraphEngine
    tokens: list[list[int]] = field(default_factory=list)  # of each prompt, first round
    steps: int = 0
    seconds: list[float] = field(default_factory=list)  # a round, steps alone
    whole: list[float] = field(default_factory=list)  # a round, with prefill


def bench_steps(
    target: Target,
    drafter: DFlash,
    prompts: Sequence[str],
    *,
    new_tokens: int = 128,
    rounds: int = 3,
    eager: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Greedy, batch 1, prompt after prompt; without graphs one round only, or none (``eager``).

    Keys: ``methods`` (name -> tokens_per_second, of steps alone and with prefill; tokens_per_step; step_us; ratio to
    plain decoding in graphs), ``partings`` (each text that is not plain decoding's: method, prompt, where and by how
    much), ``budget`` (name -> stage -> microseconds under graph replay).
    """
    chats = [target.tokenizer.encode_chat(prompt) for prompt in prompts]
    context = max(map(len, chats)) + new_tokens
    stop = target.model.config.eos_token_ids
    methods = {}
    for name, nodes, topk, graphs in METHODS:
        if not (graphs or eager):
            continue
        config = EngineConfig(
            budget=nodes or 1,
            topk=topk,
            block_size=drafter.config.block_size,
            max_context=context + (nodes or 0) + 1,
            max_requests=1,
            captured_bs=(1,),
            stop=stop,
        )
        model = None if nodes is None else drafter
        methods[name] = _Method(GraphEngine(target.model, model, config, graphs=graphs))
        _round(methods[name], chats[:1], new_tokens)  # kernels are compiled, graphs captured
    for number in range(rounds):
        for method in methods.values():
            if number and not method.engine.graphs:
                continue
            found = _round(method, chats, new_tokens)
            if not number:
                method.tokens = found
        report(f"round {number + 1} of {rounds}")
    return _figures(target, chats, methods)


def _round(method: _Method, chats: Sequence[list[int]], new_tokens: int) -> list[list[int]]:
    """All prompts once."""
    texts, steps, stepping = [], 0, 0.0
    torch.cuda.synchronize()
    started = time.perf_counter()
    for number, chat in enumerate(chats):
        state = method.engine.add(f"r{number}", chat, new_tokens)
        torch.cuda.synchronize()
        before = time.perf_counter()
        while method.engine.running:
            method.engine.step()
            steps += 1
        stepping += time.perf_counter() - before
        texts.append(state.output)
    if len(chats) > 1:
        method.whole.append(time.perf_counter() - started)
        method.seconds.append(stepping)
        method.steps = steps
    return texts


def _figures(
    target: Target, chats: Sequence[list[int]], methods: dict[str, _Method]
) -> dict[str, Any]:
    plain = methods["plain, graphs"]
    rows, partings = {}, []
    for name, method in methods.items():
        made = sum(map(len, method.tokens))
        stepped = made - len(method.tokens)
        speed = stepped / statistics.median(method.seconds)
        base = sum(map(len, plain.tokens)) - len(plain.tokens)
        rows[name] = {
            "tokens_per_second": speed,
            "with_prefill": made / statistics.median(method.whole),
            "tokens_per_step": stepped / method.steps,
            "step_us": 1e6 * statistics.median(method.seconds) / method.steps,
            "ratio_to_plain": speed / (base / statistics.median(plain.seconds)),
        }
        for number, (chat, wanted, found) in enumerate(
            zip(chats, plain.tokens, method.tokens, strict=True)
        ):
            apart = parting(target.model, chat, wanted, found)
            if apart is not None:
                partings.append(_as_row(name, number, apart))
    return {
        "methods": rows,
        "texts": len(chats),
        "partings": partings,
        "budget": {
            name: stage_times(_step_of(method))
            for name, method in methods.items()
            if name.endswith("graphs")
        },
    }


def _as_row(method: str, prompt: int, apart: Parting) -> dict[str, Any]:
    return {
        "method": method,
        "prompt": prompt,
        "token": apart.place,
        "margin": apart.margin,
        "near_tie": apart.near_tie,
    }


def _step_of(method: _Method) -> DeviceStep:
    return next(iter(method.engine.steps.values()))


@torch.inference_mode()
def stage_times(step: DeviceStep) -> dict[str, float]:
    """Microseconds of each stage of a step under graph replay, over the buffers as the last step left them."""
    drafter, state, layout = step.drafter, step.state, step.layout
    tree, logits = step.verified.tree, step.verified.logits
    stages: dict[str, Callable[[], object]] = {}
    if drafter is not None:
        drafted = drafter.draft(state, layout)
        stages["draft"] = lambda: drafter.draft(state, layout)
        stages["build"] = lambda: drafter.grow(drafted, state.roots, step.budget, step.width)
    stages["offsets"] = lambda: layout.prefixes(state)
    stages["rows and mask"] = lambda: layout.rows(state, tree)
    stages["target"] = step.forward
    stages["choices"] = lambda: choices(logits)
    stages["walk"] = step.walk
    stages["commit"] = step.commit
    # A commit moves the request on: it is measured with nothing accepted.
    state.raw_bs.zero_()
    step.walk()
    spent = {name: replayed([run], repeats=4, rounds=9) for name, run in stages.items()}
    return spent | {"sum": sum(spent.values())}
