"""Tiny models of transformers, and the two ways of running a forward pass that tests compare."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from engine.models.causal import CausalCache
from engine.models.decoder import Decoder, DecoderOutput

KINDS = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 61,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@pytest.fixture
def make_hf() -> Callable[..., Any]:
    """make_hf(family, **overrides): a random transformers model with spread-out weights."""

    def make(family: str, **overrides: Any) -> Any:
        config_class, model_class = KINDS[family]
        torch.manual_seed(11)
        model = model_class(config_class(**(SMALL | overrides))).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.15)
        return model

    return make


@pytest.fixture
def saved(make_hf: Callable[..., Any], tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """saved(family, **overrides): such a model and the folder it was saved to."""

    def save(family: str = "llama", shard: str = "1GB", **overrides: Any) -> tuple[Any, Path]:
        model = make_hf(family, **overrides)
        folder = tmp_path / "saved"
        model.save_pretrained(folder, max_shard_size=shard)
        return model, folder

    return save


@pytest.fixture
def one_shot() -> Callable[..., DecoderOutput]:
    """one_shot(model, ids, **options): all rows in one causal forward pass."""

    def run(model: Decoder, ids: list[int], **options: Any) -> DecoderOutput:
        cache = CausalCache(model.config, len(ids), dtype=model.dtype)
        tokens, positions = torch.tensor(ids), torch.arange(len(ids))
        return model(tokens, positions, cache.attention(0), **options)

    return run
