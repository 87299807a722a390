"""Converting GGUF files that the test writes: what comes out, what is refused, what remains."""

import json

import numpy as np
import pytest
import torch
from gguf_files import TEMPLATE, vocabulary, write_gguf
from safetensors.torch import load_file

from engine.models import gguf_convert
from engine.models.gguf_convert import convert_gguf
from engine.models.rope import RopeScaling, inverse_frequencies
from engine.models.tokenizer import Tokenizer
from engine.models.weights import load_decoder, read_config


def model_for_file(make_hf, family, **overrides):
    return make_hf(family, vocab_size=260, intermediate_size=64, **overrides)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_round_trip(family, tied, make_hf, tmp_path, one_shot):
    theirs = model_for_file(make_hf, family, tie_word_embeddings=tied)
    parts = ("q_proj", "k_proj", "up_proj", "embed_tokens")
    held = write_gguf(tmp_path / "m.gguf", family, theirs, quantised=parts)
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert stored.keys() == held.keys()
    for name, expected in held.items():
        assert torch.equal(stored[name], torch.tensor(expected).to(torch.bfloat16)), name
    theirs.load_state_dict({name: tensor.float() for name, tensor in stored.items()}, strict=False)
    ids = [5, 200, 31, 31, 90, 7]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0]
    found = one_shot(load_decoder(tmp_path / "out"), ids).logits
    assert (found - expected).abs().max() <= 1e-4
    config = read_config(tmp_path / "out")
    assert (config.family, config.tie_word_embeddings) == (family, tied)
    assert (config.bos_token_id, config.eos_token_ids) == (258, (259,))
    assert config.rms_norm_eps == 1e-6


def test_tokenizer_and_chat_template_survive(make_hf, tmp_path):
    write_gguf(tmp_path / "m.gguf", "llama", model_for_file(make_hf, "llama"))
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    tokenizer = Tokenizer(tmp_path / "out")
    assert tokenizer.decode(tokenizer.encode("the thé")) == "the thé"
    names = vocabulary()
    chat = tokenizer.encode_chat("the")
    assert [names[i] for i in chat] == ["<|im_start|>", "the", "<|im_end|>", *"answer:"]
    assert tokenizer._inner.chat_template == TEMPLATE


def test_llama3_divisors_become_parameters(make_hf, tmp_path):
    theirs = model_for_file(make_hf, "llama")
    scaling = RopeScaling("llama3", 32.0, 1.0, 4.0, 8192)
    plain = inverse_frequencies(10000.0, 8, RopeScaling())
    divisors = (plain / inverse_frequencies(10000.0, 8, scaling)).numpy()
    assert divisors.max() > 1.0

    def add(values):
        return lambda writer: writer.add_tensor("rope_freqs.weight", values)

    write_gguf(tmp_path / "m.gguf", "llama", theirs, extra=add(divisors))
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    assert read_config(tmp_path / "out").rope_scaling == scaling
    write_gguf(tmp_path / "n.gguf", "llama", theirs, extra=add(divisors * np.float32(1.5)))
    with pytest.raises(ValueError, match=r"n\.gguf: rope_freqs\.weight: expected the divisors"):
        convert_gguf(tmp_path / "n.gguf", tmp_path / "out2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "n.gguf", "out"]


def test_linear_scaling_is_carried_over(make_hf, tmp_path):
    def add(writer):
        writer.add_string("llama.rope.scaling.type", "linear")
        writer.add_float32("llama.rope.scaling.factor", 4.0)

    write_gguf(tmp_path / "m.gguf", "llama", model_for_file(make_hf, "llama"), extra=add)
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    assert read_config(tmp_path / "out").rope_scaling == RopeScaling("linear", 4.0)


@pytest.mark.parametrize(
    ("extra", "arch", "message"),
    [
        (None, "gemma", "general.architecture: expected llama or qwen3, found 'gemma'"),
        (lambda w: w.add_expert_count(8), None, "llama.expert_count: expected none, found 8"),
        (lambda w: w.add_sliding_window(64), None, "sliding_window: expected none, found 64"),
        (
            lambda w: w.add_string("llama.rope.scaling.type", "yarn"),
            None,
            "scaling.type: expected none or linear, found 'yarn'",
        ),
        (
            lambda w: w.add_tensor("blk.0.ssm_a.weight", np.zeros(4, np.float32)),
            None,
            "tensor blk.0.ssm_a.weight: expected a tensor of a llama or qwen3 decoder",
        ),
    ],
)
def test_unsupported_files_are_refused(extra, arch, message, make_hf, tmp_path):
    theirs = model_for_file(make_hf, "llama")
    write_gguf(tmp_path / "m.gguf", "llama", theirs, extra=extra, arch=arch)
    with pytest.raises(ValueError, match=message):
        convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_file_that_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"x" * 4096)
    with pytest.raises(ValueError, match=r"m\.gguf: GGUF magic invalid"):
        convert_gguf(tmp_path / "m.gguf", tmp_path / "out")


def test_existing_folder_is_left_alone(make_hf, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError, match="expected no such folder yet"):
        convert_gguf(tmp_path / "m.gguf", tmp_path / "out")


def test_interruption_leaves_nothing(make_hf, tmp_path, monkeypatch):
    write_gguf(tmp_path / "m.gguf", "llama", model_for_file(make_hf, "llama"))

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gguf_convert, "_write_tokenizer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
    seen = []
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", progress=lambda *step: seen.append(step))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "llama"
    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert {label for label, _ in seen} == {"Converting m.gguf"}
