"""What a user may name as a model, and how each becomes a ready Hugging Face folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import torch

from engine.models.builtin import BUILTIN, ModelUnavailable, resolve_builtin
from engine.models.cache import cache_folder, expanded, model_entry, sha256_of
from engine.models.decoder import Decoder
from engine.models.gguf_convert import convert_gguf
from engine.models.progress import ProgressFn
from engine.models.tokenizer import Tokenizer
from engine.models.weights import load_decoder

__all__ = ["ModelUnavailable", "Target", "cache_folder", "load_target", "resolve_model"]

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "merges.txt", "tokenizer.model"]


class Source(StrEnum):
    """Where a model comes from."""

    BUILTIN = "built-in"
    FOLDER = "folder"
    GGUF = "gguf"
    HUB = "hub"


@dataclass(frozen=True)
class Target:
    """A loaded model with its tokenizer."""

    name: str  # as the user gave it
    folder: Path
    model: Decoder
    tokenizer: Tokenizer


def resolve_model(spec: str, *, progress: ProgressFn | None = None) -> Path:
    """The ready folder of a built-in name, a Hugging Face folder, a GGUF file or a hub id
    ``org/name``.

    A GGUF file is converted once, into a cache entry named by its content. Raises ModelUnavailable
    if a download fails, ValueError for anything else that isn't a model.
    """
    source, path = source_of(spec), expanded(spec)
    if source is Source.BUILTIN:
        return resolve_builtin(BUILTIN[spec], progress)
    if source is Source.FOLDER:
        return _checked_folder(path)
    if source is Source.GGUF:
        return _converted(path, progress)
    return _from_hub(spec)


def source_of(spec: str) -> Source:
    """Where a model comes from; nothing is loaded. Raises ``ValueError`` for what is no model's name."""
    path = expanded(spec)
    if spec in BUILTIN:
        return Source.BUILTIN
    if spec and path.is_dir():  # an empty name would be the working folder
        return Source.FOLDER
    if path.is_file() and path.suffix == ".gguf":
        return Source.GGUF
    if HUB_ID.fullmatch(spec) and path.suffix != ".gguf":
        return Source.HUB
    raise ValueError(
        f"model {spec!r}: expected {' or '.join(BUILTIN)}, a Hugging Face folder, a .gguf file "
        f"or org/name, found none of these"
    )


def load_target(
    spec: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    progress: ProgressFn | None = None,
) -> Target:
    """Resolve and load. Each call loads anew: whoever wants one copy keeps it."""
    folder = resolve_model(spec, progress=progress)
    try:
        model = load_decoder(folder, dtype=dtype, device=device, progress=progress)
        return Target(spec, folder, model, Tokenizer(folder))
    except (ValueError, OSError) as error:
        if not folder.is_relative_to(cache_folder()):
            raise
        raise ValueError(f"{error}; remove {folder} and it is made anew") from error


def _checked_folder(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise ValueError(f"model {folder}: expected config.json in this folder, found none")
    return folder


def _converted(file: Path, progress: ProgressFn | None) -> Path:
    name = f"gguf-{sha256_of(file, progress)[:16]}"
    return model_entry(name, lambda folder: convert_gguf(file, folder, progress=progress))


def _from_hub(spec: str) -> Path:
    from huggingface_hub import snapshot_download  # slow to import
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(spec, allow_patterns=HUB_FILES, ignore_patterns=["*/*"]))
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ModelUnavailable(
            f"The model {spec} isn't in the Hugging Face cache and couldn't be downloaded "
            f"({type(error).__name__}: {str(error).splitlines()[0]}). Either give a Hugging Face "
            f"folder, or give a GGUF file, or download {spec} on a machine with network and copy "
            f"its folder here."
        ) from error
