"""The decoder against transformers' models of the same weights."""

import pytest
import torch

from engine.models.causal import CausalCache, generate_plain
from engine.models.linear import LinearKind
from engine.models.weights import load_decoder

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
    "rope_theta": 500.0,
}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
CASES = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-bias": ("llama", {"attention_bias": True}),
    "llama-one-kv-head": ("llama", {"num_key_value_heads": 1}),
    "llama-no-sharing": ("llama", {"num_key_value_heads": 4}),
    "llama-llama3": ("llama", {"rope_parameters": LLAMA3}),
    "llama-linear": ("llama", {"rope_parameters": LINEAR}),
    "qwen3": ("qwen3", {}),
    "qwen3-tied": ("qwen3", {"tie_word_embeddings": True}),
    "qwen3-wide-heads": ("qwen3", {"head_dim": 16}),
    "qwen3-bias": ("qwen3", {"attention_bias": True}),
}


def tokens(length):
    return torch.randint(0, 61, (length,), generator=torch.Generator().manual_seed(length)).tolist()


@pytest.mark.parametrize("case", CASES)
def test_logits_and_features_equal_transformers(case, saved, one_shot):
    family, overrides = CASES[case]
    theirs, folder = saved(family, **overrides)
    ours = load_decoder(folder)
    for length in (1, 2, 7, 40, 128):
        ids = tokens(length)
        with torch.no_grad():
            expected = theirs(torch.tensor([ids]), output_hidden_states=True)
        found = one_shot(ours, ids, feature_layers=[1, 0])
        assert expected.logits.std() > 0.5, "the reference must not be flat"
        assert (found.logits - expected.logits[0]).abs().max() <= 1e-4
        for feature, layer in zip(found.features, [1, 0], strict=True):
            # hidden_states[0] is the embedding, so layer k's output is number k + 1
            assert (feature - expected.hidden_states[layer + 1][0]).abs().max() <= 1e-4


def test_last_layer_feature_is_taken_before_the_final_norm(saved, one_shot):
    theirs, folder = saved("llama")
    ours, ids, seen = load_decoder(folder), tokens(9), []
    theirs.model.norm.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad():
        theirs(torch.tensor([ids]))
    found = one_shot(ours, ids, feature_layers=[2])
    assert (found.features[0] - seen[0][0]).abs().max() <= 1e-4


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_greedy_text_equals_transformers(family, saved):
    theirs, folder = saved(family)
    theirs.generation_config.eos_token_id = None
    prompt = tokens(6)
    with torch.no_grad():
        expected = theirs.generate(torch.tensor([prompt]), max_new_tokens=30, do_sample=False)
    found = list(generate_plain(load_decoder(folder), prompt, 30))
    assert found == expected[0, 6:].tolist()


def test_packed_and_plain_products_agree(saved, one_shot):
    _, folder = saved("qwen3", attention_bias=True)
    packed = load_decoder(folder)
    plain = load_decoder(folder, dtype=torch.float64)
    assert (packed.linear_kind, plain.linear_kind) == (
        LinearKind.ONEDNN_PACKED,
        LinearKind.TORCH,
    )
    for length in (1, 3, 8, 33):
        difference = (
            one_shot(packed, tokens(length)).logits - one_shot(plain, tokens(length)).logits
        )
        assert difference.abs().max() <= 1e-4


def test_sixteen_bit_model_gives_float32_logits_near_the_exact_ones(saved, one_shot):
    theirs, folder = saved("llama")
    found = one_shot(load_decoder(folder, dtype=torch.bfloat16), tokens(12), feature_layers=[0])
    with torch.no_grad():
        expected = theirs(torch.tensor([tokens(12)])).logits[0]
    assert found.logits.dtype is torch.float32
    assert found.features.dtype is torch.bfloat16
    assert (found.logits - expected).abs().max() < 0.1 * expected.abs().max()


def test_positions_not_row_numbers_place_a_row(saved):
    theirs, folder = saved("llama")
    ours, ids = load_decoder(folder), tokens(5)
    positions = torch.tensor([3, 4, 10, 11, 40])
    with torch.no_grad():
        expected = theirs(torch.tensor([ids]), position_ids=positions[None]).logits[0]
        plain = theirs(torch.tensor([ids])).logits[0]
    cache = CausalCache(ours.config, 5)
    found = ours(torch.tensor(ids), positions, cache.attention(0)).logits
    assert (found - expected).abs().max() <= 1e-4
    assert (found - plain).abs().max() > 1e-2
