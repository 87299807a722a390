"""Reading config.json: both layouts of the rotary settings, end tokens, and refusals."""

import pytest

from engine.models.config import DecoderConfig
from engine.models.rope import RopeScaling

BASE = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_defaults_of_absent_keys():
    config = DecoderConfig.from_hf(BASE)
    assert (config.num_kv_heads, config.head_dim, config.group_size) == (4, 8, 1)
    assert (config.rope_theta, config.rope_scaling) == (10000.0, RopeScaling())
    assert (config.qk_norm, config.attention_bias, config.tie_word_embeddings) == (False,) * 3
    assert (config.eos_token_ids, config.bos_token_id) == ((), None)


def test_both_layouts_of_rotary_settings_are_one():
    flat = DecoderConfig.from_hf({**BASE, "rope_theta": 500000.0, "rope_scaling": LLAMA3})
    nested = DecoderConfig.from_hf({**BASE, "rope_parameters": {"rope_theta": 500000.0, **LLAMA3}})
    assert flat == nested
    assert flat.rope_scaling == RopeScaling("llama3", 32.0, 1.0, 4.0, 8192)
    old = DecoderConfig.from_hf({**BASE, "rope_scaling": {"type": "linear", "factor": 2}})
    assert old.rope_scaling == RopeScaling("linear", 2.0)


def test_end_tokens_of_the_generation_config_win():
    config = {**BASE, "eos_token_id": 2}
    assert DecoderConfig.from_hf(config).eos_token_ids == (2,)
    assert DecoderConfig.from_hf(config, {"eos_token_id": [7, 2]}).eos_token_ids == (7, 2)
    assert DecoderConfig.from_hf(config, {"temperature": 0.6}).eos_token_ids == (2,)


def test_qwen3_norms_heads_and_keeps_its_head_width():
    config = DecoderConfig.from_hf({**BASE, "model_type": "qwen3", "head_dim": 16})
    assert (config.qk_norm, config.head_dim, config.query_width) == (True, 16, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma3"}, "model_type must be one of llama, qwen3, found 'gemma3'"),
        ({"model_type": None}, "model_type must be one of"),
        ({"use_sliding_window": True}, "use_sliding_window must be false"),
        ({"hidden_act": "gelu"}, "hidden_act must be 'silu', found 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias must be False"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1.0, found 0.5"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "default, linear or llama3, found 'yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "needs a number for factor, found None"),
        ({"vocab_size": None}, "vocab_size must be a positive integer, found None"),
        ({"hidden_size": "32"}, "hidden_size must be a positive integer, found '32'"),
        ({"num_key_value_heads": 3}, "found 4 and 3"),
        ({"head_dim": 7}, "head_dim must be even for rotation, found 7"),
    ],
)
def test_refusals_name_the_key(change, message):
    with pytest.raises(ValueError, match=message):
        DecoderConfig.from_hf({**BASE, **change})
