"""Steps on the device decode what plain decoding decodes, with the trees, rows and masks of the host's engine.

Run: pytest tests/graphs/test_engine.py
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.decoding.accept import Sampler
from engine.decoding.engine import Engine
from engine.decoding.plain import decode_plain
from engine.decoding.settings import EngineConfig, FinishReason
from engine.drafters.dflash import DFlashDrafter
from engine.graphs.engine import GraphEngine
from engine.models.decoder import Decoder
from engine.models.dflash import DFlash
from engine.models.dflash_tiny import random_dflash
from engine.models.tiny import random_decoder

GPU = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
)
PROMPTS = {"a": [1, 5, 9, 4], "b": [7, 3], "c": [2, 2, 8, 6, 6, 1, 3]}


def models(family: str, device: str, **options: object) -> tuple[Decoder, DFlash]:
    """Few tokens, so that random drafts are accepted now and then."""
    target = random_decoder(family, seed=7, head_dim=16, vocab_size=12, **options).to(device)  # type: ignore[arg-type]
    return target, random_dflash(target, seed=3)


def config(**options: object) -> EngineConfig:
    chosen = {"budget": 11, "topk": None, "block_size": 6, "max_context": 90, "max_requests": 3}
    return EngineConfig(**(chosen | options))  # type: ignore[arg-type]


def plain(target: Decoder, prompt: list[int], count: int, stop: tuple[int, ...] = ()) -> list[int]:
    return list(decode_plain(target, "r", prompt, count, sampler=Sampler(), stop=stop))


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_texts_are_plain_decodings(device: str, family: str, drafted: bool, overlap: bool) -> None:
    target, drafter = models(family, device)
    engine = GraphEngine(target, drafter if drafted else None, config(), overlap=overlap)
    states = [engine.add(rid, prompt, 20 + len(prompt)) for rid, prompt in PROMPTS.items()]
    steps = 0
    while engine.running:
        engine.step()
        steps += 1
    for state, prompt in zip(states, PROMPTS.values(), strict=True):
        assert state.output == plain(target, prompt, 20 + len(prompt))
        assert state.finished is FinishReason.LENGTH
    assert steps <= 27
    assert engine.allocator.available == 3 * (90 + engine.q_len)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize(
    "options",
    [{}, {"topk": 2}, {"budget": 1}, {"budget": 30, "block_size": 8}, {"topk": 1, "budget": 5}],
)
def test_steps_are_the_host_engines(device: str, options: dict[str, int]) -> None:
    """Trees, rows, masks, offsets, choices and paths of every step, side by side with the eager engine."""
    target, drafter = models("llama", device)
    settings = config(**options)
    device_engine = GraphEngine(target, drafter, settings)
    host_drafter = DFlashDrafter(drafter, target, block_size=settings.block_size)
    host = Engine(target, host_drafter, settings)
    for rid, prompt in PROMPTS.items():
        device_engine.add(rid, prompt, 16)
        host.add(rid, prompt, 16)
    longest = compared = 0
    while host.running:
        running = len(host.running)
        step = device_engine.verify()
        tree, layout, walked = step.verified.tree, step.layout, step.walked
        trees = [tree.parents.clone(), tree.tokens.clone(), tree.counts.clone()]
        rows = layout.input_ids.clone(), layout.positions.clone()
        device_engine.commit(step)
        wanted = host.step()
        q_len, cells = settings.q_len, len(wanted.inputs.attention.custom_mask)
        weights = [built.tree.log_weights for built in wanted.built]
        if any(np.diff(w, prepend=w[0] + 1).max() > -1e-4 for w in weights):
            continue  # rounding may order such nodes otherwise
        compared += 1
        for i, built in enumerate(wanted.built):
            count = int(trees[2][i])
            assert trees[0][i, :count].tolist() == built.tree.parents.tolist()
            assert trees[1][i, :count].tolist() == built.tree.tokens.tolist()
            assert [n for n in walked.path[i].tolist() if n >= 0] == wanted.accepted[i]
            longest = max(longest, len(wanted.accepted[i]))
        for found, expected in zip(
            rows, (wanted.inputs.input_ids, wanted.inputs.positions), strict=True
        ):
            assert found[: running * q_len].tolist() == expected.tolist()
        assert layout.custom_mask[:cells].tolist() == wanted.inputs.attention.custom_mask.tolist()
        assert (
            layout.mask_indptr[: running + 1].tolist()
            == wanted.inputs.attention.mask_indptr.tolist()
        )
        for i, built in enumerate(wanted.built):
            live = slice(i * q_len, i * q_len + built.tree.num_nodes)
            assert step.verified.predict[live].tolist() == wanted.target_predict[live].tolist()
    assert longest > 1
    assert compared > 3


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("overlap", [False, True])
def test_stop_tokens_and_requests_that_come_and_go(device: str, overlap: bool) -> None:
    target, drafter = models("llama", device)
    text = plain(target, PROMPTS["a"], 30)
    stop = next(t for place, t in enumerate(text) if place > 2 and t not in text[:place])
    settings = config(stop=(stop,), captured_bs=(1, 2, 4))
    engine = GraphEngine(target, drafter, settings, overlap=overlap)
    first = engine.add("a", PROMPTS["a"], 40)
    engine.step()
    others = [engine.add(rid, PROMPTS[rid], 9) for rid in ("b", "c")]
    while engine.running:
        engine.step()
    again = engine.add("a2", PROMPTS["a"], 40)
    while engine.running:
        engine.step()
    assert first.output == again.output == plain(target, PROMPTS["a"], 40, (stop,))
    assert first.finished is FinishReason.STOP
    for state, rid in zip(others, ("b", "c"), strict=True):
        assert state.output == plain(target, PROMPTS[rid], 9, (stop,))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_name_that_comes_back_is_another_request(overlap: bool) -> None:
    target, drafter = models("llama", "cpu")
    engine = GraphEngine(target, drafter, config(), overlap=overlap)
    for prompt in PROMPTS.values():
        state = engine.add("same", prompt, 8)
        while engine.running:
            engine.step()
        assert state.output == plain(target, prompt, 8)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_end_of_the_context(overlap: bool) -> None:
    target, drafter = models("llama", "cpu")
    engine = GraphEngine(target, drafter, config(max_context=30), overlap=overlap)
    state = engine.add("a", PROMPTS["a"], 100)
    while engine.running:
        engine.step()
    assert state.finished is FinishReason.CONTEXT
    assert state.prefix_len <= 30
    assert state.output == plain(target, PROMPTS["a"], len(state.output))


@pytest.mark.parametrize(
    "shape",
    [
        {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 5},
        {"qk_norm": False, "draft_vocab_size": 20},
    ],
)
def test_drafters_of_other_shapes(shape: dict[str, object]) -> None:
    """The drafts themselves are compared: a wrong one would still leave the text right."""
    target = random_decoder("llama", seed=7)
    drafter = random_dflash(target, seed=3, **shape)  # type: ignore[arg-type]
    engine = GraphEngine(target, drafter, config())
    host = Engine(target, DFlashDrafter(drafter, target, block_size=6), config())
    for each in (engine, host):
        each.add("a", PROMPTS["c"], 24)
    while host.running:
        step = engine.verify()
        tree = step.verified.tree
        tokens, count = tree.tokens.clone(), int(tree.counts[0])
        engine.commit(step)
        assert tokens[0, :count].tolist() == host.step().built[0].tree.tokens.tolist()


def test_prompts_of_a_padded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding changes neither the first token, nor what target and drafter keep of the prompt."""
    target, drafter = models("llama", "cpu")
    engines = [GraphEngine(target, drafter, config()) for _ in range(2)]
    monkeypatch.setattr(engines[1].prefill, "padded", lambda count: 16)
    states = [engine.add("c", PROMPTS["c"], 20) for engine in engines]
    assert states[0].root == states[1].root
    slots = engines[0].table.req_to_token[states[0].req_pool_idx, : len(PROMPTS["c"])]
    for left, right in zip(*(kept(engine) for engine in engines), strict=True):
        torch.testing.assert_close(left[:, slots], right[:, slots])
        assert not left[:, 1 + len(slots) :].any()  # the slots of the prompt are the lowest
        assert not right[:, 1 + len(slots) :].any()
    while engines[1].running:
        engines[1].step()
    assert states[1].output == plain(target, PROMPTS["c"], 20)


def kept(engine: GraphEngine) -> list[torch.Tensor]:
    """Pools [layers, slots, kv_heads, head_dim]."""
    assert engine.drafter is not None
    return [engine.pool.keys, engine.pool.values, engine.drafter.k_pool, engine.drafter.v_pool]


def test_whole_steps_and_parts_of_them_in_turn() -> None:
    """What is in flight when a step is taken apart is read first."""
    target, drafter = models("llama", "cpu")
    engine = GraphEngine(target, drafter, config(), overlap=True)
    state = engine.add("a", PROMPTS["a"], 30)
    emitted = [state.root]
    while engine.running:
        emitted += engine.step().get("a", [])
        if engine.running:
            before = len(state.output)
            step = engine.verify()
            emitted += state.output[before:]
            if engine.running:
                emitted += engine.commit(step).get("a", [])
    assert state.output == plain(target, PROMPTS["a"], 30)
    assert emitted[:30] == state.output


def test_what_is_refused() -> None:
    target, drafter = models("llama", "cpu")
    for name, options in (
        ("temperature", {"sampler": Sampler(0.5)}),
        ("spine", {"spine": True}),
        ("max_depth", {"max_depth": 2}),
    ):
        with pytest.raises(ValueError, match=f"{name}: expected none with steps on the device"):
            GraphEngine(target, drafter, config(**options))
    with pytest.raises(ValueError, match="block_size: expected 2 … 8"):
        GraphEngine(target, drafter, config(block_size=9))
    with pytest.raises(ValueError, match="graphs: expected the target on a GPU"):
        GraphEngine(target, drafter, config(), graphs=True)
    with pytest.raises(RuntimeError, match="no request is running"):
        GraphEngine(target, drafter, config()).step()
