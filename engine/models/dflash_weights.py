"""load_dflash and save_dflash: folders of config.json and safetensors, in the layouts that drafters are found in.

Read: DFlash's names with or without ``model.``, fused or split matrices, one file or shards, 16- and 32-bit floats and
8-bit rows. Written: one file, split matrices, bfloat16 or 8-bit rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.models import dflash_names as names
from engine.models.checkpoint import SINGLE, open_checkpoint
from engine.models.decoder import Decoder
from engine.models.dflash import DFlash
from engine.models.dflash_config import DFlashConfig
from engine.models.dflash_hf import config_from_hf, config_to_hf
from engine.models.jsonfile import read_object, write_object

logger = logging.getLogger(__name__)
LAYER = re.compile(r"layers\.(\d+)\.")
# What values of the wrong kind or size raise where they are first used.
UNREADABLE = (ValueError, TypeError, IndexError, OverflowError, RecursionError, ZeroDivisionError)
OPTIONAL = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")


@dataclass(frozen=True)
class LoadReport:
    """What loading found; names are without ``model.``."""

    folder: Path
    loaded: int  # tensors of the file that became weights
    ignored: tuple[str, ...]  # the target's own or derived
    absent: tuple[str, ...]  # optional ones that the drafter does without
    bits: int  # of a stored matrix entry

    def __str__(self) -> str:
        ignored, absent = (", ".join(part) or "none" for part in (self.ignored, self.absent))
        return (
            f"{self.folder}: {self.loaded} tensors of {self.bits} bits; "
            f"ignored: {ignored}; absent: {absent}"
        )


def load_dflash(
    folder: Path,
    target: Decoder,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    trainable: bool = False,
) -> DFlash:
    """The drafter in ``folder`` for ``target``, in the target's dtype and place unless told otherwise.

    It is frozen and packed for decoding; ``trainable``: neither. What was ignored goes to the log; see
    :func:`load_dflash_reported`, which raises the same errors.
    """
    model, report = load_dflash_reported(
        folder, target, dtype=dtype, device=device, trainable=trainable
    )
    logger.info("%s", report)
    return model


def load_dflash_reported(
    folder: Path,
    target: Decoder,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    trainable: bool = False,
) -> tuple[DFlash, LoadReport]:
    """Like :func:`load_dflash`, with the report.

    Raises ValueError naming the file, the expected and the found for a configuration that isn't computed or doesn't
    fit ``target``, a damaged file, and missing, unexpected or misshapen tensors.
    """
    file = folder / "config.json"
    try:
        raw, stored = read_object(file), dict(open_checkpoint(folder).tensors())
        tensors = names.from_rows_of_8_bits(names.without_prefix(stored))
        ids = names.draft_ids(tensors, target.config.vocab_size)
    except UNREADABLE as error:
        said = str(error)
        raise ValueError(said if str(folder) in said else f"{folder}: {said}") from error
    config = _read_config(file, raw, target, tensors, ids)
    model = DFlash(
        config,
        positions=target.config.max_position,
        dtype=dtype or target.dtype,
        device=device or target.device,
    )
    ignored = sorted(name for name in tensors if names.is_ignored(name))
    _fill(folder, model, tensors, ids)
    for name, view in names.named_views(model).items():
        if not bool(view.isfinite().all()):
            raise ValueError(f"{folder}: {name}: expected finite weights, found some that are not")
    report = LoadReport(
        folder, len(stored) - len(ignored), tuple(ignored), _absent(config), _bits(stored.values())
    )
    if trainable:
        model.requires_grad_(True)
    else:
        model.pack()
    return model, report


def save_dflash(model: DFlash, folder: Path, *, bits: int = 16) -> None:
    """Write config.json and model.safetensors; ``folder`` is made if need be.

    16: bfloat16. 8: matrices as int8 rows with float16 scales, the rest bfloat16; that is this project's own form,
    which only :func:`load_dflash` reads. Raises ValueError for other ``bits`` or weights that are not finite.
    """
    if bits not in (8, 16):
        raise ValueError(f"bits: expected 8 or 16, found {bits}")
    tensors: dict[str, Tensor] = {}
    for name, view in names.named_views(model).items():
        if bits == 8 and view.ndim == 2:
            tensors[name], tensors[name + names.SCALE] = names.to_rows_of_8_bits(view)
        else:
            tensors[name] = view.to(torch.bfloat16)
    if model.draft_ids is not None and model.never is not None:
        places = torch.arange(len(model.draft_ids), device=model.device)
        tensors[names.DRAFT_TO_TARGET] = model.draft_ids - places
        tensors[names.TARGET_TO_DRAFT] = ~model.never
    folder.mkdir(parents=True, exist_ok=True)
    plain = {
        name: tensor.cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    save_file(plain, folder / SINGLE, metadata={"format": "pt"})
    write_object(folder / "config.json", config_to_hf(model.config))


def _read_config(
    file: Path,
    raw: Mapping[str, Any],
    target: Decoder,
    tensors: Mapping[str, Tensor],
    ids: Tensor | None,
) -> DFlashConfig:
    """The configuration, completed by what the weights say and compared with the target."""
    normed = True if any(name.endswith(OPTIONAL) for name in tensors) else None
    try:
        config = config_from_hf(raw, num_target_layers=target.config.num_layers, qk_norm=normed)
        config = _with_draft_vocabulary(config, ids)
    except UNREADABLE as error:
        raise ValueError(f"{file}: {error}") from error
    for key, found, expected in (
        ("hidden_size", config.hidden_size, target.config.hidden_size),
        ("vocab_size", config.vocab_size, target.config.vocab_size),
        ("num_target_layers", config.num_target_layers, target.config.num_layers),
    ):
        if found != expected:
            raise ValueError(f"{file}: {key}: expected {expected} (the target's), found {found}")
    depth = 1 + max((int(m[1]) for m in map(LAYER.match, tensors) if m), default=-1)
    if config.num_layers != depth:
        raise ValueError(
            f"{file}: num_hidden_layers: expected {depth} (the layers in the weights), "
            f"found {config.num_layers}"
        )
    return config


def _with_draft_vocabulary(config: DFlashConfig, ids: Tensor | None) -> DFlashConfig:
    size = config.draft_vocab_size
    if ids is None:
        if size is not None and size < config.vocab_size:
            raise ValueError(
                f"draft_vocab_size: expected {names.DRAFT_TO_TARGET} or {names.TARGET_TO_DRAFT} "
                f"among the weights for {size} of {config.vocab_size} tokens, found neither"
            )
        return replace(config, draft_vocab_size=None)
    if size is not None and size != len(ids):
        raise ValueError(
            f"draft_vocab_size: expected {len(ids)} (the tokens in the weights), found {size}"
        )
    return replace(config, draft_vocab_size=len(ids))


def _fill(folder: Path, model: DFlash, stored: Mapping[str, Tensor], ids: Tensor | None) -> None:
    """Copy every tensor into its weight, after all names and shapes were compared."""
    views = names.named_views(model)
    maps = (names.DRAFT_TO_TARGET, names.TARGET_TO_DRAFT)
    kept = {k: v for k, v in stored.items() if k not in maps and not names.is_ignored(k)}
    try:
        found = names.split_fused(kept, model.config)
        if ids is not None:
            model.restrict(ids)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    problems = [
        f"{name}: expected {_shape(views.get(name))}, found {_shape(found.get(name))}"
        for name in sorted(views.keys() | found.keys())
        if _shape(views.get(name)) != _shape(found.get(name))
    ]
    if problems:
        raise ValueError(f"{folder}: {len(problems)} tensors don't fit: " + "; ".join(problems))
    for name, view in views.items():
        view.copy_(found[name])


def _shape(tensor: Tensor | None) -> str:
    return "no tensor" if tensor is None else str(list(tensor.shape))


def _absent(config: DFlashConfig) -> tuple[str, ...]:
    normless = () if config.qk_norm else OPTIONAL
    whole = (
        (names.DRAFT_TO_TARGET, names.TARGET_TO_DRAFT) if config.draft_vocab_size is None else ()
    )
    return (*normless, *whole)


def _bits(stored: Iterable[Tensor]) -> int:
    """Of the entries of matrices, the narrowest if they differ."""
    return min(8 * tensor.itemsize for tensor in stored if tensor.ndim == 2)
