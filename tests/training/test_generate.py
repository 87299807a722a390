"""Answers of the row pool against plain decoding, one prompt after another."""

import pytest
import torch

from engine.attention.decode_rows import decode_rows, decode_rows_torch
from engine.models.causal import generate_plain
from engine.models.tiny import random_decoder
from engine.training.generate import Sampling, generate

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_greedy_answers_equal_plain_decoding(family, device):
    model = random_decoder(family, seed=3, head_dim=16).to(device)
    chance = torch.Generator().manual_seed(0)
    prompts = [
        torch.randint(
            50, (int(torch.randint(1, 9, (), generator=chance)),), generator=chance
        ).tolist()
        for _ in range(11)
    ]
    stop = (7, 11)
    found = {
        answer.prompt: answer.tokens
        for answer in generate(model, prompts, max_new_tokens=20, stop=stop, rows=4)
    }
    expected = {
        i: list(generate_plain(model, prompt, 20, stop=stop)) for i, prompt in enumerate(prompts)
    }
    assert found == expected
    assert any(tokens[-1] in stop for tokens in found.values())
    assert any(len(tokens) == 20 for tokens in found.values())


def test_answers_end_where_the_models_positions_do():
    model = random_decoder("llama", seed=3, max_position=16)
    (answer,) = generate(model, [[1, 2, 3]], max_new_tokens=50, stop=())
    assert len(answer.tokens) == 13


def test_prompts_that_cannot_be_answered_are_named():
    model = random_decoder("llama", seed=3, max_position=16)
    with pytest.raises(ValueError, match="prompts: expected fewer than 16 tokens, found 16"):
        list(generate(model, [[1], [1] * 16], max_new_tokens=1, stop=()))
    with pytest.raises(ValueError, match="prompt 1: expected tokens, found none"):
        list(generate(model, [[1], []], max_new_tokens=1, stop=()))


def test_sampling_keeps_to_top_k_and_top_p():
    logits = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1])).repeat(4000, 1)
    assert set(Sampling(1.0, top_k=2).choose(logits).tolist()) == {0, 1}
    assert set(Sampling(1.0, top_k=4, top_p=0.65).choose(logits).tolist()) == {0, 1}
    counts = Sampling(1.0, top_k=4).choose(logits).bincount(minlength=4) / 4000
    assert torch.allclose(counts, torch.tensor([0.4, 0.3, 0.2, 0.1]), atol=0.03)
    assert Sampling().choose(logits).unique().tolist() == [0]


@pytest.mark.parametrize("device", DEVICES)
def test_rows_attend_to_their_own_length(device):
    dtype = torch.float32
    query = torch.randn(5, 6, 16, dtype=dtype, device=device)
    keys, values = (torch.randn(5, 150, 2, 16, dtype=dtype, device=device) for _ in range(2))
    lengths = torch.tensor([1, 64, 65, 129, 150], device=device)
    out = decode_rows(query, keys, values, lengths)
    for row, length in enumerate(lengths.tolist()):
        for head in range(6):
            scores = keys[row, :length, head // 3].double() @ query[row, head].double() / 4
            want = scores.softmax(dim=0) @ values[row, :length, head // 3].double()
            assert (out[row, head] - want).abs().max() < (1e-5 if device == "cpu" else 5e-3)
    # what lies past a row's length never matters
    alone = decode_rows_torch(query[:1], keys[:1, :1], values[:1, :1], lengths[:1])
    keys[0, 1:], values[0, 1:] = 7.0, 5.0
    assert torch.equal(decode_rows_torch(query, keys, values, lengths)[0], alone[0])
