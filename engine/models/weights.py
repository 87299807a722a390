"""load_decoder: a Hugging Face folder (config.json and safetensors) to a Decoder with its
weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from engine.models.checkpoint import Checkpoint, open_checkpoint
from engine.models.config import DecoderConfig
from engine.models.decoder import Decoder
from engine.models.gguf_convert import convert_gguf
from engine.models.jsonfile import read_object
from engine.models.naming import EMBEDDING, HEAD, named_views
from engine.models.progress import ProgressFn, report

__all__ = ["ProgressFn", "convert_gguf", "load_decoder", "read_config"]

DERIVED_SUFFIX = "rotary_emb.inv_freq"  # old files store it; it follows from the configuration


def read_config(folder: Path) -> DecoderConfig:
    """The configuration in ``folder``, with the end tokens of generation_config.json where there is
    one.
    """
    generation = folder / "generation_config.json"
    try:
        return DecoderConfig.from_hf(
            read_object(folder / "config.json"),
            read_object(generation) if generation.is_file() else None,
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error


def load_decoder(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    progress: ProgressFn | None = None,
) -> Decoder:
    """Build the model of ``folder``, fill it, casting the stored weights to ``dtype``, and pack it.

    Raises ValueError for an unsupported configuration, for a damaged file, and for missing,
    unexpected or misshapen tensors, all of which are listed with the expected and the found shape.
    """
    config, checkpoint = read_config(folder), open_checkpoint(folder)
    model = Decoder(config, dtype=dtype, device=device)
    views = named_views(model)
    _check_shapes(folder, views, checkpoint, config.tie_word_embeddings)
    _fill(folder, views, checkpoint, progress)
    model.pack()
    return model


def _fill(
    folder: Path,
    views: Mapping[str, Tensor],
    checkpoint: Checkpoint,
    progress: ProgressFn | None,
) -> None:
    """Copy every tensor; a stored copy of a tied head has to equal the embedding."""
    tied_head: Tensor | None = None
    for done, (name, tensor) in enumerate(checkpoint.tensors(), start=1):
        if name in views:
            views[name].copy_(tensor)
        elif name == HEAD:
            tied_head = tensor
        report(progress, f"Loading {folder.name}", done / len(checkpoint.files))
    embedding = views[EMBEDDING]
    if tied_head is not None and not torch.equal(tied_head.to(embedding), embedding):
        raise ValueError(f"{folder}: {HEAD} differs from {EMBEDDING}, but config ties them")


def _check_shapes(
    folder: Path, views: Mapping[str, Tensor], checkpoint: Checkpoint, tied: bool
) -> None:
    expected = {name: tuple(view.shape) for name, view in views.items()}
    if tied and HEAD in checkpoint.shapes:
        expected[HEAD] = expected[EMBEDDING]
    found = {n: s for n, s in checkpoint.shapes.items() if not n.endswith(DERIVED_SUFFIX)}
    problems = [
        f"{name}: expected {_shape(expected.get(name))}, found {_shape(found.get(name))}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]
    if problems:
        raise ValueError(f"{folder}: {len(problems)} tensors don't fit: " + "; ".join(problems))


def _shape(shape: tuple[int, ...] | None) -> str:
    return "no tensor" if shape is None else str(list(shape))
