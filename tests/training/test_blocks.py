"""Training blocks against the drafter's own decoding, and the loss against its plain formula."""

import math

import pytest
import torch

from engine.drafters.dflash import DFlashDrafter
from engine.models.causal import CausalCache
from engine.models.dflash_tiny import random_dflash
from engine.models.tiny import random_decoder
from engine.training.blocks import block_hidden, target_features
from engine.training.loss import Weighting, block_loss, cosine, head_loss
from engine.training.softmax_rows import cross_entropy_rows_

TARGET = random_decoder("llama", seed=1)


def one_by_one(drafter, text, place):
    """Logits of a fresh drafter that has seen the text before ``place``."""
    cache = CausalCache(TARGET.config, len(text))
    ids = torch.tensor(text[:place])
    layers = drafter.config.target_layer_ids
    out = TARGET(ids, torch.arange(place), cache.attention(0), feature_layers=layers)
    live = DFlashDrafter(drafter, TARGET)
    live.start("r", text[:place], torch.cat(list(out.features), dim=-1))
    return live.draft(["r"], [text[place]])[0]


@pytest.mark.parametrize(
    "kinds", [None, ("sliding_attention", "full_attention"), ("sliding_attention",) * 2]
)
def test_a_block_of_many_equals_one_decoded_alone(kinds):
    drafter = random_dflash(TARGET, seed=2, layer_types=kinds, sliding_window=6 if kinds else None)
    texts = torch.randint(50, (3, 21), generator=torch.Generator().manual_seed(5))
    anchors = torch.tensor([[4, 9, 19], [1, 2, 12], [7, 7, 20]])
    features = target_features(TARGET, texts, drafter.config.target_layer_ids)
    hidden = block_hidden(drafter, TARGET.embedding, features, texts, anchors)
    logits = drafter.logits(hidden, TARGET.lm_head)
    for line, text in enumerate(texts.tolist()):
        for block, place in enumerate(anchors[line].tolist()):
            want = one_by_one(drafter, text, place)
            assert (logits[line, block] - want).abs().max() < 1e-4, (line, block)


def test_the_loss_is_the_weighted_cross_entropy():
    chance = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 3, 4, 8, generator=chance, dtype=torch.float64, requires_grad=True)
    head = torch.randn(11, 8, generator=chance, dtype=torch.float64)
    labels = torch.randint(11, (2, 3, 4), generator=chance)
    labels[0, 1, 2:] = -1
    found = block_loss(hidden, head, labels, Weighting("exp", gamma=3.0))
    logits = hidden @ head.T
    total = weight = 0.0
    for i in range(2):
        for j in range(3):
            for k in range(4):
                if labels[i, j, k] >= 0:
                    w = math.exp(-k / 3.0)
                    total = total - w * logits[i, j, k].log_softmax(dim=0)[labels[i, j, k]]
                    weight += w
    assert abs(float(found.loss.detach()) - float(total.detach()) / weight) < 1e-5
    (mine,) = torch.autograd.grad(found.loss, hidden)
    (want,) = torch.autograd.grad(total / weight, hidden)
    assert (mine - want).abs().max() < 1e-6
    best = (logits.argmax(-1) == labels).long()
    assert found.correct.tolist() == best.sum(dim=(0, 1)).tolist()
    assert found.counted.tolist() == [6, 6, 5, 5]
    runs = [
        [1 + sum(1 for k in range(4) if best[i, j, : k + 1].all()) for j in range(3)]
        for i in range(2)
    ]
    assert float(found.accepted) == pytest.approx(sum(map(sum, runs)) / 6)


def test_d_pace_weights_are_the_gradient_of_the_expected_length():
    losses = torch.rand(5, 6, dtype=torch.float64) * 2
    known = torch.ones(5, 6, dtype=torch.bool)
    known[1, 3:] = False
    logs = (-losses).requires_grad_()
    expected = sum(
        torch.stack([logs[i, k].exp() for k in range(m + 1)]).prod()
        for i in range(5)
        for m in range(int(known[i].sum()))
    )
    (want,) = torch.autograd.grad(expected, logs)
    found = Weighting("d-pace", alpha=0.0).weights(losses, known)
    assert (found - want).abs().max() < 1e-6


def test_long_inputs_go_in_chunks(monkeypatch):
    hidden = torch.randn(100, 8, requires_grad=True)
    head, labels = torch.randn(30, 8), torch.randint(30, (100,))
    whole, best = head_loss(hidden, head, labels)
    (slope,) = torch.autograd.grad(whole.sum(), hidden)
    monkeypatch.setattr("engine.training.loss.CHUNK", 7)
    parts, same = head_loss(hidden, head, labels)
    assert torch.allclose(whole, parts, atol=1e-6)
    assert torch.equal(best, same)
    assert torch.allclose(slope, torch.autograd.grad(parts.sum(), hidden)[0], atol=1e-6)


def test_the_learning_rate_rises_and_falls():
    rates = [cosine(step, 100, 0.1) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == pytest.approx(1.0)
    assert rates[100] == pytest.approx(0.05)
    assert rates[10:] == sorted(rates[10:], reverse=True)


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ),
    ],
)
def test_rows_of_cross_entropy(device):
    logits = 5 * torch.randn(9, 10_001, device=device)
    logits[3, 77] = logits[3, 9000] = 40.0  # a tie: the first is the best
    labels = torch.randint(10_001, (9,), device=device)
    wide = logits.double().requires_grad_()
    want = torch.nn.functional.cross_entropy(wide, labels, reduction="none")
    (slope,) = torch.autograd.grad(want.sum(), wide)
    loss, best = cross_entropy_rows_(logits, labels)
    assert (loss - want).abs().max() < 1e-4
    assert (logits - slope).abs().max() < 1e-5
    assert best[3] == 77
    single = torch.arange(9, device=device) != 3
    assert torch.equal(best[single], wide.argmax(dim=-1)[single])
