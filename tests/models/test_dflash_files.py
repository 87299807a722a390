"""Every layout that a DFlash checkpoint comes in, read; and what is written, read back."""

import json
import logging

import pytest
import torch
from safetensors.torch import load_file

from engine.models.dflash_hf import config_from_hf, config_to_hf, default_layer_ids
from engine.models.dflash_names import named_views, to_rows_of_8_bits
from engine.models.dflash_tiny import random_dflash
from engine.models.dflash_weights import load_dflash, load_dflash_reported, save_dflash
from engine.models.linear import LinearKind
from tests.drafters.dflash_files import (
    VOCAB,
    fused,
    random_tensors,
    raw_config,
    target,
    write_checkpoint,
)

TARGET = target()
RAW = raw_config()
TENSORS = random_tensors(RAW)


def prefixed(tensors):
    return {f"model.{name}": tensor for name, tensor in tensors.items()}


def same(model, tensors):
    views = named_views(model)
    assert views.keys() == tensors.keys()
    for name, view in views.items():
        assert torch.equal(view, tensors[name]), name


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("prefix", [False, True])
def test_layouts(prefix, fuse, shards, tmp_path):
    tensors = fused(TENSORS) if fuse else TENSORS
    tensors = prefixed(tensors) if prefix else tensors
    model, report = load_dflash_reported(
        write_checkpoint(tmp_path, RAW, tensors, shards=shards), TARGET
    )
    same(model, TENSORS)
    assert (report.loaded, report.ignored, report.bits) == (len(tensors), (), 32)
    assert report.absent == ("d2t", "t2d")


def test_fused_biases(tmp_path):
    raw = raw_config(attention_bias=True)
    tensors = random_tensors(raw, bias=True)
    same(load_dflash(write_checkpoint(tmp_path, raw, fused(tensors)), TARGET), tensors)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_head_norms_are_there_if_the_weights_have_them(family, qk_norm, tmp_path):
    raw = raw_config(model_type=family)
    tensors = random_tensors(raw, qk_norm=qk_norm)
    folder = write_checkpoint(tmp_path, raw, tensors)
    if family == "qwen3" and not qk_norm:
        with pytest.raises(ValueError, match="4 tensors don't fit"):
            load_dflash(folder, TARGET)
        return
    model, report = load_dflash_reported(folder, TARGET)
    same(model, tensors)
    absent = () if qk_norm else ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
    assert report.absent == (*absent, "d2t", "t2d")


@pytest.mark.parametrize("place", ["top", "nested", "both"])
def test_keys_in_either_place(place):
    raw = raw_config()
    own = {"block_size": raw.pop("block_size"), **raw.pop("dflash_config")}
    if place != "nested":
        raw |= own
    if place != "top":
        raw["dflash_config"] = own
    assert config_from_hf(raw) == config_from_hf(RAW)


def test_other_spellings():
    raw = raw_config(rope_theta=None, rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
    raw["dflash_config"] = {"mask_token_id": 7, "layer_ids": [2, 0]}
    config = config_from_hf(raw)
    assert (config.rope_theta, config.target_layer_ids) == (5e5, (2, 0))
    del raw["layer_types"]
    raw |= {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 9}
    config = config_from_hf(raw)
    assert config.layer_types == ("full_attention", "sliding_attention")
    assert (config.causal(0), config.causal(1)) == (False, True)
    assert (config.window(0), config.window(1)) == (None, 9)
    raw["sliding_window_non_causal"] = True
    assert not config_from_hf(raw).causal(1)


@pytest.mark.parametrize(
    ("depth", "count", "ids"),
    [
        (30, 5, (1, 8, 14, 20, 27)),
        (36, 5, (1, 9, 17, 25, 33)),
        (64, 5, (1, 16, 31, 46, 61)),
        (61, 6, (1, 12, 24, 35, 47, 58)),
        (30, 1, (15,)),
    ],
)
def test_default_layer_ids(depth, count, ids):
    assert default_layer_ids(depth, count) == ids
    raw = raw_config(num_target_layers=depth, num_hidden_layers=count)
    del raw["dflash_config"]["target_layer_ids"]
    assert config_from_hf(raw).target_layer_ids == ids


CONFIGS = {
    "plain": {},
    "llama": {"model_type": "llama", "attention_bias": True},
    "sliding": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5},
    "scales": {"own": {"input_embedding_scale": 2.0, "final_logit_softcapping": 30.0}},
    "causal": {"is_causal": True, "output_multiplier": 0.5, "draft_vocab_size": 9},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        }
    },
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_written_configuration_reads_back_equal(case):
    config = config_from_hf(raw_config(**CONFIGS[case]))
    written = json.loads(json.dumps(config_to_hf(config)))
    assert config_from_hf(written) == config


def test_the_targets_own_and_derived_tensors_are_ignored_and_reported(tmp_path, caplog):
    extra = {
        "lm_head.weight": torch.zeros(VOCAB, 32),
        "model.embed_tokens.weight": torch.zeros(VOCAB, 32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4),
    }
    folder = write_checkpoint(tmp_path, RAW, TENSORS | extra)
    with caplog.at_level(logging.INFO):
        same(load_dflash(folder, TARGET), TENSORS)
    (line,) = [record.getMessage() for record in caplog.records if "dflash" in record.name]
    assert line == (
        f"{folder}: {len(TENSORS)} tensors of 32 bits; ignored: embed_tokens.weight, "
        "layers.0.self_attn.rotary_emb.inv_freq, lm_head.weight; absent: d2t, t2d"
    )


@pytest.mark.parametrize("given", ["d2t", "t2d", "both"])
def test_reduced_vocabulary(given, tmp_path):
    ids = torch.tensor([0, 3, 4, 20, 49])
    maps = {"d2t": ids - torch.arange(5), "t2d": torch.zeros(VOCAB, dtype=torch.bool)}
    maps["t2d"][ids] = True
    chosen = maps if given == "both" else {given: maps[given]}
    raw = raw_config(draft_vocab_size=5) if given == "both" else RAW
    model = load_dflash(write_checkpoint(tmp_path / "in", raw, TENSORS | chosen), TARGET)
    assert model.draft_ids.tolist() == ids.tolist()
    logits = model.logits(torch.ones(2, 32), TARGET.lm_head)
    assert logits.isfinite()[0].nonzero().flatten().tolist() == ids.tolist()
    save_dflash(model, tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(stored[name], tensor) for name, tensor in maps.items())
    again = load_dflash(tmp_path / "out", TARGET)
    assert torch.equal(again.never, model.never)
    assert again.config == model.config


def test_all_tokens_named_is_no_reduction(tmp_path):
    folder = write_checkpoint(tmp_path, raw_config(draft_vocab_size=VOCAB), TENSORS)
    assert load_dflash(folder, TARGET).config.draft_vocab_size is None


def test_16_bits_round_trip(tmp_path):
    model = random_dflash(TARGET, seed=1, num_layers=3)
    save_dflash(model, tmp_path)
    again, report = load_dflash_reported(tmp_path, TARGET)
    assert again.config == model.config
    assert report.bits == 16
    same(again, {name: view.bfloat16().float() for name, view in named_views(model).items()})
    save_dflash(again, tmp_path / "more")  # a packed model is written too
    same(load_dflash(tmp_path / "more", TARGET), named_views(again))


def test_8_bits_round_trip(tmp_path):
    model = random_dflash(TARGET, seed=1, num_layers=3)
    save_dflash(model, tmp_path, bits=8)
    again, report = load_dflash_reported(tmp_path, TARGET)
    assert report.bits == 8
    stored = load_file(tmp_path / "model.safetensors")
    found = named_views(again)
    for name, view in named_views(model).items():
        if view.ndim == 1:
            assert torch.equal(found[name], view.bfloat16().float())
            continue
        assert stored[name].dtype is torch.int8
        assert stored[f"{name}_scale"].dtype is torch.float16
        scale = view.abs().amax(dim=1) / 127
        off = (found[name] - view).abs().amax(dim=1)
        assert (off <= 0.5005 * scale).all()
    whole = sum(view.numel() for view in named_views(model).values())
    assert (tmp_path / "model.safetensors").stat().st_size < 1.2 * whole + 6000


def test_8_bits_of_rows_that_are_hard():
    rows = torch.tensor([[0.0, 0.0], [1e-6, -1e-6], [1e-3, 2e-3], [3e6, -1e6], [1.0, -1.0]])
    stored, scale = to_rows_of_8_bits(rows)
    off = (stored.float() * scale.float()[:, None] - rows).abs()
    assert (off <= 0.5 * scale.float()[:, None] * 1.0001).all()
    assert stored[0].tolist() == [0, 0]
    assert stored[4].tolist() == [127, -127]


def test_8_bits_with_prefix_and_fused(tmp_path):
    stored = {}
    for name, tensor in fused(TENSORS).items():
        if tensor.ndim == 2:
            stored[f"model.{name}"], stored[f"model.{name}_scale"] = to_rows_of_8_bits(tensor)
        else:
            stored[f"model.{name}"] = tensor
    model = load_dflash(write_checkpoint(tmp_path, RAW, stored, shards=2), TARGET)
    for name, view in named_views(model).items():
        assert (view - TENSORS[name]).abs().max() <= TENSORS[name].abs().max() / 250


def test_dtype_place_and_training(tmp_path):
    folder = write_checkpoint(tmp_path, RAW, TENSORS)
    frozen = load_dflash(folder, TARGET)
    assert (frozen.dtype, frozen.device.type) == (torch.float32, "cpu")
    assert frozen.fc.kind is LinearKind.ONEDNN_PACKED
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    model = load_dflash(folder, TARGET, dtype=torch.bfloat16, trainable=True)
    assert model.dtype is torch.bfloat16
    assert model.fc.kind is LinearKind.TORCH
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert len(list(model.parameters())) == 3 + 2 * 9
