"""What the decoder promises to a caller that brings its own attention, and what it refuses."""

import pytest
import torch

from engine.models.causal import CausalCache
from engine.models.linear import LinearKind
from engine.models.tiny import random_decoder


@pytest.fixture(params=["llama", "qwen3"])
def model(request):
    return random_decoder(request.param, seed=3)


def mean_of_group(config):
    def attend(layer, query, key, value):
        return value.repeat_interleave(config.group_size, dim=1)

    return attend


def test_attention_is_called_once_a_layer_with_the_promised_shapes(model):
    calls = []

    def attend(layer, query, key, value):
        calls.append((layer, tuple(query.shape), tuple(key.shape), tuple(value.shape)))
        return torch.zeros_like(query)

    out = model(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 1]), attend)
    assert calls == [(n, (3, 4, 8), (3, 2, 8), (3, 2, 8)) for n in range(2)]
    assert out.logits.shape == (3, 50)
    assert out.features.shape == (0, 3, 32)


def test_keys_are_rotated_by_position_and_values_are_not(model):
    seen = []

    def attend(layer, query, key, value):
        seen.append((query, key, value))
        return torch.zeros_like(query)

    model(torch.tensor([5, 5]), torch.tensor([0, 7]), attend)
    query, key, value = seen[0]
    assert torch.equal(value[0], value[1])
    assert not torch.allclose(key[0], key[1], atol=1e-3)
    angles = 7 * 10000.0 ** (-torch.arange(4) / 4)
    first, second = query[0].chunk(2, -1)
    turned = torch.cat(
        (
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ),
        -1,
    )
    assert torch.allclose(query[1], turned, atol=1e-5)


def test_logits_rows_choose_and_order_rows(model):
    ids, positions, attend = torch.tensor([4, 9, 2]), torch.arange(3), mean_of_group(model.config)
    every = model(ids, positions, attend).logits
    some = model(ids, positions, attend, logits_rows=torch.tensor([2, 0])).logits
    assert torch.allclose(some, every[[2, 0]], atol=1e-5)


def test_embed_and_lm_head_are_the_ends_of_the_forward_pass(model):
    ids, attend = torch.tensor([4, 9]), mean_of_group(model.config)
    out = model(ids, torch.arange(2), attend, feature_layers=[1])
    assert torch.allclose(model.lm_head(model.norm(out.features[0])), out.logits, atol=1e-5)
    assert torch.equal(model.embed(ids), model.embedding[ids])


def test_position_beyond_the_table_is_refused(model):
    attend = mean_of_group(model.config)
    with pytest.raises(ValueError, match=r"positions: .*512 rows.*found 512"):
        model(torch.tensor([1]), torch.tensor([512]), attend)
    with pytest.raises(ValueError, match="found -1"):
        model(torch.tensor([1, 1]), torch.tensor([-1, 0]), attend)
    model(torch.tensor([1]), torch.tensor([511]), attend)


def test_wrong_arguments_are_refused(model):
    attend = mean_of_group(model.config)
    with pytest.raises(ValueError, match=r"found \[2\] and \[3\]"):
        model(torch.tensor([1, 2]), torch.arange(3), attend)
    with pytest.raises(ValueError, match=r"feature_layers: expected 0 … 1, found 2"):
        model(torch.tensor([1]), torch.arange(1), attend, feature_layers=[2])


def test_packed_model_can_not_be_cast(model):
    assert model.linear_kind is LinearKind.TORCH
    before = model(torch.tensor([7]), torch.arange(1), CausalCache(model.config, 1).attention(0))
    assert model.pack() is LinearKind.ONEDNN_PACKED
    after = model(torch.tensor([7]), torch.arange(1), CausalCache(model.config, 1).attention(0))
    assert torch.allclose(before.logits, after.logits, atol=1e-4)
    with pytest.raises(RuntimeError, match="packed model can't be moved or cast"):
        model.to(torch.bfloat16)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_random_decoders_follow_their_seed(family):
    first, again, other = (random_decoder(family, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first.layers[1].down.dense(), again.layers[1].down.dense())
    assert not torch.equal(first.layers[1].down.dense(), other.layers[1].down.dense())
