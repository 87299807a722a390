"""In fp32, DDTree's text equals plain decoding's token by token, whatever the settings."""

from functools import cache

import numpy as np
import pytest

from engine.checks.registry import check_trace
from engine.decoding.accept import Sampler
from engine.decoding.plain import decode_plain
from engine.decoding.settings import Backend, EngineConfig, Graph
from engine.drafters.prompt_lookup import PromptLookupDrafter
from engine.models.decoder import Decoder
from engine.models.tiny import random_decoder
from tests.decoding.runs import PROMPTS, run_engine

NEW_TOKENS = 24


@cache
def model_of(family: str, seed: int) -> Decoder:
    return random_decoder(family, seed=seed)


@cache
def plain_of(family: str, seed: int) -> tuple[tuple[int, ...], ...]:
    model = model_of(family, seed)
    return tuple(
        tuple(decode_plain(model, f"r{i}", prompt, NEW_TOKENS, sampler=Sampler()))
        for i, prompt in enumerate(PROMPTS)
    )


def assert_lossless(family: str, seed: int, config: EngineConfig, batch: int, **how) -> list:
    states, steps = run_engine(model_of(family, seed), config, PROMPTS[:batch], NEW_TOKENS, **how)
    assert [tuple(state.output) for state in states] == list(plain_of(family, seed)[:batch])
    report = check_trace(steps)
    assert report.findings == ()
    assert max(float(np.nanmax(s.workbench.max_logit_diff)) for s in steps) < 1e-4
    return steps


@pytest.mark.parametrize("graph", list(Graph))
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("topk", [1, 4, None])
@pytest.mark.parametrize("budget", [1, 7, 16, 64])
def test_every_setting(budget: int, topk: int | None, batch: int, graph: Graph) -> None:
    config = EngineConfig(budget=budget, topk=topk, graph=graph, max_context=100)
    assert_lossless("llama", 0, config, batch)


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_many_models(family: str, seed: int) -> None:
    config = EngineConfig(budget=12, topk=3, block_size=5, graph=Graph.REPLAY, max_context=100)
    assert_lossless(family, seed, config, 3)


@pytest.mark.parametrize("accuracy", [0.0, 0.5, 1.0])
def test_a_worse_drafter_costs_steps_and_never_text(accuracy: float) -> None:
    config = EngineConfig(budget=16, topk=1, max_context=100)
    steps = assert_lossless("llama", 0, config, 1, accuracy=accuracy)
    perfect = assert_lossless("llama", 0, config, 1, accuracy=1.0)
    assert len(steps) >= len(perfect)
    # a perfect chain of 7 and its bonus: 8 tokens a step; the first token comes from the prefill
    assert len(perfect) == -(-(NEW_TOKENS - 1) // 8)


def test_prompt_lookup() -> None:
    drafter = PromptLookupDrafter(8, 50)
    assert_lossless("llama", 0, EngineConfig(max_context=100), 3, drafter=drafter)


def test_the_dense_backend() -> None:
    config = EngineConfig(backend=Backend.DENSE, graph=Graph.REPLAY, max_context=100)
    assert_lossless("qwen3", 0, config, 3)


def test_a_stop_token_ends_the_text_where_plain_decoding_ends() -> None:
    plain = plain_of("llama", 0)[0]
    stop = plain[10]
    end = plain.index(stop) + 1
    config = EngineConfig(stop=(stop,), max_context=100)
    states, steps = run_engine(model_of("llama", 0), config, PROMPTS[:1], NEW_TOKENS)
    assert tuple(states[0].output) == plain[:end]
    assert states[0].finished == "stop"
    assert steps[-1].outcome.emitted is not None
    assert steps[-1].outcome.emitted[0][-1] == stop
    assert check_trace(steps).findings == ()


def test_a_full_context_ends_a_request_without_a_fault() -> None:
    config = EngineConfig(max_context=40)
    states, _ = run_engine(model_of("llama", 0), config, PROMPTS[:1], 500)
    assert states[0].finished == "context"
    assert states[0].prefix_len <= 40
