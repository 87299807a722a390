"""The acceptance walk, and sampling: exact choices, right distribution."""

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.stats import chisquare

from engine.decoding.accept import Sampler, walk
from engine.decoding.engine import Engine
from engine.decoding.metadata import build_links
from engine.decoding.plain import decode_plain
from engine.decoding.settings import EngineConfig
from engine.drafters.oracle import OracleDrafter
from engine.models.tiny import random_decoder
from engine.oracle import Oracle
from engine.step import VerifyStep
from tests.factories import clean_steps


def test_a_literal_walk() -> None:
    assert walk([1, -1, 3, -1], [-1, 2, -1, -1], [5, 9, 12, 30], [12, 4, 30, 44]) == [0, 2, 3]
    assert walk([1, -1, 3, -1], [-1, 2, -1, -1], [5, 9, 12, 30], [7, 4, 30, 44]) == [0]


def test_token_zero_is_a_token() -> None:
    assert walk([1, -1], [-1, -1], [5, 0], [0, 8]) == [0, 1]


@given(clean_steps())
def test_the_walk_over_links_equals_the_oracles_over_parents(step: VerifyStep) -> None:
    oracle = Oracle(step)
    predict = step.outcome.target_predict
    assert predict is not None
    links = build_links(list(oracle.trees), int(oracle.q_lens[0]))
    for i, tree in enumerate(oracle.trees):
        rows = oracle.rows(i)
        tokens = [*tree.tokens.tolist(), *[0] * (len(rows) - tree.num_nodes)]
        path = walk(
            links.retrieve_next_token[i].tolist(),
            links.retrieve_next_sibling[i].tolist(),
            tokens,
            predict[rows.start : rows.stop].tolist(),
        )
        assert path == oracle.accepted_nodes(i, predict)


def test_temperature_zero_is_argmax() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert Sampler().choose(logits, "r0", [4, 5]).tolist() == [1, 0]


def test_a_tiny_temperature_chooses_as_greedy_does() -> None:
    logits = torch.randn(20, 50)
    sampled = Sampler(1e-6, seed=3).choose(logits, "r0", range(20))
    assert torch.equal(sampled, logits.argmax(-1))


def test_a_token_of_probability_zero_is_never_sampled() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).repeat(2000, 1)
    assert set(Sampler(1.0, seed=1).choose(logits, "r0", range(2000)).tolist()) == {1, 3}


def test_samples_follow_the_distribution() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0])
    temperature = 0.7
    chosen = Sampler(temperature, seed=5).choose(logits.repeat(20_000, 1), "r0", range(20_000))
    expected = torch.softmax(logits.double() / temperature, -1).numpy() * 20_000
    assert chisquare(np.bincount(chosen.numpy(), minlength=4), expected).pvalue > 1e-3


def test_another_seed_or_request_samples_otherwise() -> None:
    logits = torch.zeros(30, 50)
    first = Sampler(1.0, seed=1).choose(logits, "r0", range(30))
    assert not torch.equal(first, Sampler(1.0, seed=2).choose(logits, "r0", range(30)))
    assert not torch.equal(first, Sampler(1.0, seed=1).choose(logits, "r1", range(30)))


@pytest.mark.parametrize("temperature", [-0.1, float("nan"), float("inf")])
def test_impossible_temperatures_are_named(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature: expected a number >= 0"):
        Sampler(temperature)


def tree_samples(temperature: float, seeds: int, batch: int, accuracy: float) -> list[int]:
    """Third token of each of ``seeds * batch`` tree-decoded requests."""
    model = random_decoder("llama", seed=2, vocab_size=5, logit_scale=1.0)
    chosen = []
    for seed in range(seeds):
        sampler = Sampler(temperature, seed)
        config = EngineConfig(
            budget=6, topk=3, block_size=3, sampler=sampler, max_context=16, max_requests=batch
        )
        # The drafter's sampler has a seed of its own: its guesses are independent of what is drawn.
        other = Sampler(temperature, seed + 10**6)
        engine = Engine(model, OracleDrafter(model, 3, accuracy=accuracy, sampler=other), config)
        states = [engine.add(f"r{i}", [1, 2, 3], 3) for i in range(batch)]
        while engine.running:
            engine.step()
        chosen += [state.output[2] for state in states]
    return chosen


@pytest.mark.parametrize("accuracy", [1.0, 0.3])
def test_tree_decoding_samples_the_targets_distribution(accuracy: float) -> None:
    """Chi-square of the third token against its exact distribution, summed over all continuations."""
    model = random_decoder("llama", seed=2, vocab_size=5, logit_scale=1.0)
    exact = exact_last_token(model, [1, 2, 3], 1.0)
    chosen = tree_samples(1.0, 20, 50, accuracy)
    seen = np.bincount(chosen, minlength=5)
    assert chisquare(seen, exact * len(chosen)).pvalue > 1e-3


def exact_last_token(model, prompt: list[int], temperature: float) -> np.ndarray:
    """Distribution of the third new token, summed over all continuations."""

    def next_probs(tokens: list[int]) -> np.ndarray:
        ids = torch.tensor(tokens)
        mask = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()

        def attention(layer, q, k, v):
            group = q.shape[1] // k.shape[1]
            scores = torch.einsum("rhd,nhd->hrn", q, k.repeat_interleave(group, 1))
            weights = (scores / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf).softmax(-1)
            return torch.einsum("hrn,nhd->rhd", weights, v.repeat_interleave(group, 1))

        with torch.inference_mode():
            logits = model(ids, torch.arange(len(ids)), attention).logits[-1]
        return torch.softmax(logits.double() / temperature, -1).numpy()

    first = next_probs(prompt)
    total = np.zeros(5)
    for a, pa in enumerate(first):
        for b, pb in enumerate(next_probs([*prompt, a])):
            total += pa * pb * next_probs([*prompt, a, b])
    return total


def test_with_one_seed_tree_and_plain_decoding_draw_the_same_tokens() -> None:
    model = random_decoder("qwen3", seed=4)
    for seed in range(5):
        sampler = Sampler(0.8, seed)
        config = EngineConfig(budget=9, topk=3, block_size=4, sampler=sampler, max_context=64)
        engine = Engine(model, OracleDrafter(model, 4, accuracy=0.6, sampler=sampler), config)
        state = engine.add("r0", [5, 6, 7], 24)
        while engine.running:
            engine.step()
        plain = list(decode_plain(model, "r0", [5, 6, 7], 24, sampler=sampler))
        assert state.output == plain
