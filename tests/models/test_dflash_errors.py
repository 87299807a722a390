"""The text of every error about a drafter's files: place, expected, found."""

import json

import pytest
import torch

from engine.models.dflash_hf import config_from_hf
from engine.models.dflash_names import to_rows_of_8_bits
from engine.models.dflash_tiny import random_dflash
from engine.models.dflash_weights import load_dflash, save_dflash
from tests.drafters.dflash_files import (
    VOCAB,
    fused,
    random_tensors,
    raw_config,
    target,
    write_checkpoint,
)

TARGET = target()
TENSORS = random_tensors(raw_config())
Q_PROJ = "layers.0.self_attn.q_proj.weight"
QKV = "layers.0.self_attn.qkv_proj.weight"
ABSENT = object()


def changed(changes):
    """raw_config with changed keys, ABSENT ones left out; own: those of dflash_config."""
    raw = raw_config()
    for part, keys in ((raw, changes), (raw["dflash_config"], changes.get("own", {}))):
        for key, value in keys.items():
            if value is ABSENT:
                part.pop(key, None)
            elif key != "own":
                part[key] = value
    return raw


def message(call, *args, **kwargs):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call(*args, **kwargs)
    return str(caught.value)


CONFIG_ERRORS = [
    ({"model_type": "gpt2"}, "model_type: expected llama or qwen3, found 'gpt2'"),
    (
        {"block_size": ABSENT},
        "block_size: expected an integer of at least 1, found None",
    ),
    ({"block_size": 1}, "block_size: expected at least 2, found 1"),
    ({"own": {"block_size": 8}}, "block_size: found 6 at the top level and 8 in dflash_config"),
    (
        {"own": {"mask_token_id": ABSENT}},
        "mask_token_id: expected an integer of at least 0, found None",
    ),
    (
        {"own": {"mask_token_id": 50}},
        "mask_token_id: expected 0 … 49 (vocab_size is 50), found 50",
    ),
    (
        {"own": {"target_layer_ids": [0, 4]}},
        "target_layer_ids: expected 0 … 3 (num_target_layers is 4), found 4",
    ),
    (
        {"own": {"target_layer_ids": []}},
        "target_layer_ids: expected at least one layer, found none",
    ),
    (
        {"own": {"target_layer_ids": [0, "1"]}},
        "target_layer_ids: expected a list of integers, found [0, '1']",
    ),
    ({"dflash_config": [7]}, "dflash_config: expected an object, found [7]"),
    (
        {"num_hidden_layers": 0},
        "num_hidden_layers: expected an integer of at least 1, found 0",
    ),
    ({"hidden_size": True}, "hidden_size: expected an integer of at least 1, found True"),
    (
        {"num_key_value_heads": 3},
        "num_attention_heads: expected a multiple of num_key_value_heads, found 4 and 3",
    ),
    ({"head_dim": 7}, "head_dim: expected an even number, found 7"),
    ({"rms_norm_eps": -1}, "rms_norm_eps: expected a positive number, found -1"),
    ({"hidden_act": "gelu"}, "hidden_act: expected 'silu', found 'gelu'"),
    (
        {"layer_types": ["full_attention"]},
        "layer_types: expected 2 entries (num_hidden_layers), found 1",
    ),
    (
        {"layer_types": ["full_attention", "linear_attention"]},
        "layer_types: expected full_attention or sliding_attention, found 'linear_attention'",
    ),
    ({"layer_types": "full_attention"}, "layer_types: expected a list, found 'full_attention'"),
    (
        {"layer_types": ["full_attention", "sliding_attention"]},
        "sliding_window: expected a positive integer (layer_types has sliding_attention), found None",
    ),
    ({"is_causal": "no"}, "is_causal: expected true or false, found 'no'"),
    (
        {"own": {"conv_kernel_size": 2}},
        "conv_kernel_size: expected none, it isn't computed, found 2",
    ),
    (
        {"sample_from_anchor": True},
        "sample_from_anchor: expected none, it isn't computed, found True",
    ),
    (
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        "config: rope_type must be default, linear or llama3, found 'yarn'",
    ),
    (
        {"draft_vocab_size": 51},
        "draft_vocab_size: expected at most 50 (vocab_size), found 51",
    ),
]


@pytest.mark.parametrize(("changes", "text"), CONFIG_ERRORS)
def test_configuration(changes, text, tmp_path):
    raw = changed(changes)
    assert message(config_from_hf, raw) == text
    folder = write_checkpoint(tmp_path, raw, TENSORS)
    assert message(load_dflash, folder, TARGET) == f"{folder / 'config.json'}: {text}"


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({"hidden_size": 48}, "hidden_size: expected 48 (the target's), found 32"),
        ({"vocab_size": 61}, "vocab_size: expected 61 (the target's), found 50"),
        ({"num_layers": 3}, "num_target_layers: expected 3 (the target's), found 4"),
    ],
)
def test_another_target(shape, text, tmp_path):
    folder = write_checkpoint(tmp_path, raw_config(), TENSORS)
    other = target(**shape)
    assert message(load_dflash, folder, other) == f"{folder / 'config.json'}: {text}"


def test_too_shallow_a_target_without_num_target_layers(tmp_path):
    folder = write_checkpoint(tmp_path, changed({"num_target_layers": ABSENT}), TENSORS)
    assert message(load_dflash, folder, target(num_layers=2)) == (
        f"{folder / 'config.json'}: "
        "target_layer_ids: expected 0 … 1 (num_target_layers is 2), found 2"
    )


@pytest.mark.parametrize("depth", [1, 3])
def test_another_number_of_layers(depth, tmp_path):
    folder = write_checkpoint(tmp_path, raw_config(num_hidden_layers=depth), TENSORS)
    assert message(load_dflash, folder, TARGET) == (
        f"{folder / 'config.json'}: "
        f"num_hidden_layers: expected 2 (the layers in the weights), found {depth}"
    )


def test_missing_unexpected_and_misshapen_tensors_are_all_listed(tmp_path):
    tensors = dict(TENSORS)
    del tensors["hidden_norm.weight"]
    tensors |= {"fc.weight": torch.zeros(32, 96), "layers.1.attention_conv.base": torch.zeros(3)}
    folder = write_checkpoint(tmp_path, raw_config(), tensors)
    assert message(load_dflash, folder, TARGET) == (
        f"{folder}: 3 tensors don't fit: fc.weight: expected [32, 64], found [32, 96]; "
        "hidden_norm.weight: expected [32], found no tensor; "
        "layers.1.attention_conv.base: expected no tensor, found [3]"
    )


def test_one_head_norm_of_a_pair(tmp_path):
    name = "layers.1.self_attn.k_norm.weight"
    tensors = {key: value for key, value in TENSORS.items() if key != name}
    folder = write_checkpoint(tmp_path, raw_config(model_type="llama"), tensors)
    assert message(load_dflash, folder, TARGET) == (
        f"{folder}: 1 tensors don't fit: {name}: expected [8], found no tensor"
    )


IDS = torch.tensor([0, 3, 9])
T2D = torch.zeros(VOCAB, dtype=torch.bool)
TENSOR_ERRORS = [
    (
        {"model.norm.weight": torch.zeros(32)},
        "norm.weight: expected one tensor, found it with and without model.",
    ),
    (
        {Q_PROJ: torch.zeros(32, 32, dtype=torch.int8)},
        f"{Q_PROJ}_scale: expected [32], found no tensor",
    ),
    (
        {Q_PROJ: torch.zeros(32, 32, dtype=torch.int8), f"{Q_PROJ}_scale": torch.zeros(31)},
        f"{Q_PROJ}_scale: expected [32], found [31]",
    ),
    ({f"{Q_PROJ}_scale": torch.zeros(32)}, f"{Q_PROJ}: expected int8, found torch.float32"),
    ({"t2d": torch.zeros(49, dtype=torch.bool)}, "t2d: expected [50], found [49]"),
    ({"d2t": torch.zeros(2, 2, dtype=torch.int64)}, "d2t: expected one axis, found [2, 2]"),
    (
        {"d2t": IDS - torch.arange(3), "t2d": T2D},
        "d2t: expected the 0 tokens of t2d, found 3 that aren't all the same",
    ),
    (
        {"d2t": torch.tensor([0, 49])},
        "draft vocabulary: expected ascending token ids up to 49, found 50 after 0",
    ),
    (
        {"d2t": torch.tensor([1, 0])},
        "draft vocabulary: expected ascending token ids up to 49, found 1 after 1",
    ),
]


@pytest.mark.parametrize(("extra", "text"), TENSOR_ERRORS)
def test_tensors(extra, text, tmp_path):
    folder = write_checkpoint(tmp_path, raw_config(), TENSORS | extra)
    assert message(load_dflash, folder, TARGET) == f"{folder}: {text}"


def test_fused_matrices_of_another_height(tmp_path):
    tensors = fused(TENSORS) | {QKV: torch.zeros(63, 32)}
    folder = write_checkpoint(tmp_path, raw_config(), tensors)
    assert message(load_dflash, folder, TARGET) == (
        f"{folder}: {QKV}: expected 64 rows (32 + 16 + 16), found [63, 32]"
    )


def test_draft_vocabulary_without_a_map_or_of_another_size(tmp_path):
    folder = write_checkpoint(tmp_path, raw_config(draft_vocab_size=20), TENSORS)
    file = folder / "config.json"
    assert message(load_dflash, folder, TARGET) == (
        f"{file}: draft_vocab_size: expected d2t or t2d among the weights for 20 of 50 tokens, "
        "found neither"
    )
    write_checkpoint(tmp_path, raw_config(draft_vocab_size=20), TENSORS | {"d2t": IDS})
    assert message(load_dflash, folder, TARGET) == (
        f"{file}: draft_vocab_size: expected 3 (the tokens in the weights), found 20"
    )
    model = random_dflash(TARGET, seed=0, draft_vocab_size=20)
    text = "draft vocabulary: expected 20 tokens, found 3"
    assert message(model.restrict, IDS) == text


def test_missing_and_damaged_files(tmp_path):
    assert message(load_dflash, tmp_path, TARGET) == (
        f"{tmp_path / 'config.json'}: expected a JSON file, found none"
    )
    (tmp_path / "config.json").write_text(json.dumps(raw_config()))
    assert message(load_dflash, tmp_path, TARGET) == (
        f"{tmp_path}: expected model.safetensors or model.safetensors.index.json, "
        "found no safetensors file"
    )
    (tmp_path / "model.safetensors").write_bytes(b"not a tensor")
    assert message(load_dflash, tmp_path, TARGET).startswith(
        f"{tmp_path / 'model.safetensors'}: not a readable safetensors file ("
    )


def test_saving(tmp_path):
    model = random_dflash(TARGET, seed=0)
    assert message(save_dflash, model, tmp_path, bits=4) == "bits: expected 8 or 16, found 4"
    text = "8-bit rows: expected finite entries, found one of size nan"
    assert message(to_rows_of_8_bits, torch.tensor([[1.0, torch.nan]])) == text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {"max_position_embeddings": 10**9},
        {"max_position_embeddings": 10**30},
        {"intermediate_size": 10**30},
        {"block_size": 10**30},
        {"rms_norm_eps": float("nan")},
        {"rms_norm_eps": 10**400},
        {"rope_theta": -1.0},
        {"rope_theta": float("inf")},
        {"rope_theta": [1]},
        {"rope_scaling": 1.5},
        {"rope_parameters": "x"},
        {"final_logit_softcapping": float("inf")},
        {"input_embedding_scale": float("nan")},
    ],
)
def test_values_of_another_kind_or_size_name_the_file(changes, tmp_path):
    folder = write_checkpoint(tmp_path, raw_config(**changes), TENSORS)
    assert message(load_dflash, folder, TARGET).startswith(f"{folder / 'config.json'}: ")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", sorted(TENSORS)[::5])
def test_weights_that_are_not_finite_are_refused(name, value, tmp_path):
    broken = TENSORS[name].clone()
    broken.view(-1)[0] = value
    folder = write_checkpoint(tmp_path, raw_config(), TENSORS | {name: broken})
    said = message(load_dflash, folder, TARGET)
    assert said.startswith(f"{folder}: ")
    assert said.endswith("expected finite weights, found some that are not")
