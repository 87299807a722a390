"""Loading folders: shards, and everything that can be wrong with them."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models.weights import load_decoder

GATE = "model.layers.1.mlp.gate_proj.weight"


def rewrite(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)


def test_shards_equal_one_file(saved, one_shot):
    theirs, folder = saved("llama", shard="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    seen = []
    ours = load_decoder(folder, progress=lambda label, fraction: seen.append(fraction))
    with torch.no_grad():
        expected = theirs(torch.tensor([[5, 6, 7]])).logits[0]
    assert (one_shot(ours, [5, 6, 7]).logits - expected).abs().max() <= 1e-4
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_missing_unexpected_and_misshapen_tensors_are_all_listed(saved):
    _, folder = saved("llama")

    def change(tensors):
        del tensors["model.norm.weight"]
        tensors["model.extra"] = torch.zeros(3)
        tensors[GATE] = torch.zeros(48, 31)

    rewrite(folder, change)
    with pytest.raises(ValueError, match="3 tensors don't fit") as caught:
        load_decoder(folder)
    message = str(caught.value)
    assert "model.norm.weight: expected [32], found no tensor" in message
    assert "model.extra: expected no tensor, found [3]" in message
    assert f"{GATE}: expected [48, 32], found [48, 31]" in message


def test_truncated_file_is_refused(saved):
    _, folder = saved("llama")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model\.safetensors: not a readable safetensors file"):
        load_decoder(folder)


def test_index_that_lies_is_refused(saved):
    _, folder = saved("llama", shard="20KB")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.ghost"] = content["weight_map"][GATE]
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"aren't in their files: .*model\.ghost"):
        load_decoder(folder)
    content["weight_map"]["model.ghost"] = "../elsewhere.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"beside the index, found '\.\./elsewhere"):
        load_decoder(folder)


def test_missing_shard_is_refused(saved):
    _, folder = saved("llama", shard="20KB")
    sorted(folder.glob("model-*.safetensors"))[1].unlink()
    with pytest.raises(ValueError, match=r"beside the index, found 'model-00002"):
        load_decoder(folder)


def test_folder_without_safetensors_is_refused(saved):
    _, folder = saved("llama")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="found no safetensors file"):
        load_decoder(folder)


def test_damaged_config_is_refused(saved):
    _, folder = saved("llama")
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json: expected a JSON object, found damage"):
        load_decoder(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="found list"):
        load_decoder(folder)


def test_stored_copy_of_a_tied_head_must_be_a_copy(saved):
    _, folder = saved("llama", tie_word_embeddings=True)

    def copy_head(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    rewrite(folder, copy_head)
    assert load_decoder(folder).config.tie_word_embeddings

    def spoil_head(tensors):
        tensors["lm_head.weight"][3, 3] += 1

    rewrite(folder, spoil_head)
    with pytest.raises(ValueError, match=r"lm_head\.weight differs from model\.embed_tokens"):
        load_decoder(folder)
