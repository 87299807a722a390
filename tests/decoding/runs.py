"""Shared driver: run an engine to the end, record and check every step."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decoding.engine import Engine, RequestState
from engine.decoding.record import Recorder
from engine.decoding.reference import ReferenceModel
from engine.decoding.settings import EngineConfig
from engine.drafters.base import Drafter
from engine.drafters.oracle import OracleDrafter
from engine.models.decoder import Decoder
from engine.step import VerifyStep

PROMPTS = ([1, 2, 3, 4, 5], [7, 8, 9], [3] * 11)


def run_engine(
    model: Decoder,
    config: EngineConfig,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    *,
    drafter: Drafter | None = None,
    accuracy: float = 0.8,
    fault: str | None = None,
) -> tuple[list[RequestState], list[VerifyStep]]:
    """Final states and recorded steps, each with the reference beside it."""
    if drafter is None:
        drafter = OracleDrafter(
            model, config.block_size, accuracy=accuracy, sampler=config.sampler, max_context=500
        )
    engine, reference = Engine(model, drafter, config), ReferenceModel(model)
    recorder = Recorder(model, config, "tiny", fault)
    states, steps = [], []
    for i, prompt in enumerate(prompts):
        reference.start(f"r{i}", prompt)
        states.append(engine.add(f"r{i}", prompt, new_tokens))
    while engine.running:
        result = engine.step()
        logits = []
        for request, path in zip(result.requests, result.accepted, strict=True):
            logits.append(reference.verify(request.rid, request.tree, request.prefix_len))
            reference.commit(request.rid, path)
        steps.append(recorder.record(len(steps), result, logits))
    assert engine.allocator.available == engine.pool.num_slots - 1, "slots leaked"
    return states, steps
