"""convert_gguf: a GGUF file of the llama or qwen3 architecture to a Hugging Face folder.

Quantised weights are expanded and stored as bfloat16, so a folder is as large as the unquantised
model; the whole model passes through memory once. The file is read with the ``gguf`` package, its
tokenizer with transformers.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor, dequantize
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from engine.models.cache import PARTIAL_MARK
from engine.models.checkpoint import SINGLE
from engine.models.gguf_config import hf_config
from engine.models.gguf_names import ROPE_FACTORS, half_rotary_rows, hf_name
from engine.models.jsonfile import read_object, write_object
from engine.models.progress import ProgressFn, report

WEIGHTS_SHARE = 0.8  # of the time of a conversion


def convert_gguf(file: Path, folder: Path, *, progress: ProgressFn | None = None) -> None:
    """Write ``folder`` (config.json, bfloat16 safetensors, tokenizer files) from ``file``, all or
    nothing.

    Raises FileExistsError if the folder exists and ValueError for a file that can't be read or
    isn't supported.
    """
    if folder.exists():
        raise FileExistsError(f"{folder}: expected no such folder yet")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.parent / f"{folder.name}{PARTIAL_MARK}{os.getpid()}-{time.monotonic_ns()}"
    partial.mkdir()
    try:
        _write(file, partial, progress)
        os.rename(partial, folder)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    report(progress, f"Converting {file.name}", 1.0)


def _write(file: Path, folder: Path, progress: ProgressFn | None) -> None:
    reader = GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    factors = tensors.pop(ROPE_FACTORS, None)
    config = hf_config(fields, tensors, None if factors is None else _expand(factors))
    weights: dict[str, Tensor] = {}
    for done, (name, tensor) in enumerate(tensors.items(), start=1):
        weights[hf_name(name)] = _converted(tensor, config)
        report(progress, f"Converting {file.name}", WEIGHTS_SHARE * done / len(tensors))
    save_file(weights, folder / SINGLE, metadata={"format": "pt"})
    write_object(folder / "config.json", config)
    _write_tokenizer(file, folder, fields)


def _expand(tensor: ReaderTensor) -> NDArray[np.float32]:
    """float32 values, rows first (the file lists the innermost size first)."""
    values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    expanded: NDArray[np.float32] = values.reshape([int(n) for n in reversed(tensor.shape)])
    return expanded


def _converted(tensor: ReaderTensor, config: Mapping[str, Any]) -> Tensor:
    values = _expand(tensor)
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    part = tensor.name.split(".")[-2]
    if config["model_type"] == "llama" and part in heads:
        values = half_rotary_rows(values, config[heads[part]])
    return torch.tensor(values).to(torch.bfloat16)


def _write_tokenizer(file: Path, folder: Path, fields: Mapping[str, Any]) -> None:
    """Raises ValueError if the chat template didn't reach the folder."""
    from transformers import AutoTokenizer  # slow to import, and needed here only

    tokenizer = AutoTokenizer.from_pretrained(
        str(file.parent), gguf_file=file.name, local_files_only=True
    )
    template = fields.get("tokenizer.chat_template")
    if template is not None:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(str(folder))
    _drop_foreign_tokens(folder / "tokenizer.json", len(fields["tokenizer.ggml.tokens"]))
    saved = AutoTokenizer.from_pretrained(str(folder), local_files_only=True).chat_template
    if saved != template:
        raise ValueError(
            "tokenizer: expected the file's chat template in the folder, found another"
        )


def _drop_foreign_tokens(file: Path, vocab_size: int) -> None:
    """Remove tokens that transformers adds of its own accord: their ids are beyond the embedding."""
    content = read_object(file)
    added = content["added_tokens"]
    content["added_tokens"] = [token for token in added if token["id"] < vocab_size]
    if content["added_tokens"] != added:
        write_object(file, content)
