"""The tensor names of DFlash checkpoints, each with the part of our fused weights that holds it, and the other forms
in which the same weights are found: a ``model.`` prefix, fused matrices, 8-bit rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.models.dflash import DFlash, DFlashLayer
from engine.models.dflash_config import DFlashConfig

PREFIX = "model."
SCALE = "_scale"  # weight int8 [out, in] times weight_scale float16 [out] is the matrix
DRAFT_TO_TARGET = "d2t"  # int64 [draft_vocab_size]: token id less draft id
TARGET_TO_DRAFT = "t2d"  # bool [vocab_size]: whether the token can be drafted
DERIVED_SUFFIXES = ("rotary_emb.inv_freq", "rotary_emb.original_inv_freq")
TARGETS_OWN = ("embed_tokens.weight", "lm_head.weight")  # copies of the target's, in some exports


def named_views(model: DFlash) -> dict[str, Tensor]:
    """Tensor name to a view into the model's weights, in a fixed order, without gradient.

    Writing to a view writes the model, unless it is packed: then the matrices are copies.
    """
    views: dict[str, Tensor] = {
        "fc.weight": model.fc.dense(),
        "hidden_norm.weight": model.hidden_norm,
    }
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, DFlashLayer), type(layer)
        views |= {f"layers.{index}.{name}": view for name, view in _layer_views(layer).items()}
    views["norm.weight"] = model.final_norm
    return {name: view.detach() for name, view in views.items()}


def _layer_views(layer: DFlashLayer) -> dict[str, Tensor]:
    key, value = layer.kv.dense().chunk(2)
    gate, up = layer.gate_up.dense().chunk(2)
    views = {
        "input_layernorm.weight": layer.input_norm,
        "self_attn.q_proj.weight": layer.q.dense(),
        "self_attn.k_proj.weight": key,
        "self_attn.v_proj.weight": value,
        "self_attn.o_proj.weight": layer.out.dense(),
        "post_attention_layernorm.weight": layer.mlp_norm,
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": layer.down.dense(),
    }
    if layer.q.bias is not None and layer.kv.bias is not None and layer.out.bias is not None:
        views["self_attn.q_proj.bias"] = layer.q.bias
        views["self_attn.k_proj.bias"], views["self_attn.v_proj.bias"] = layer.kv.bias.chunk(2)
        views["self_attn.o_proj.bias"] = layer.out.bias
    if layer.q_norm is not None and layer.k_norm is not None:
        views["self_attn.q_norm.weight"] = layer.q_norm
        views["self_attn.k_norm.weight"] = layer.k_norm
    return views


def is_ignored(name: str) -> bool:
    """Whether a drafter doesn't need this tensor: it follows from the configuration or is the target's."""
    return name.endswith(DERIVED_SUFFIXES) or name in TARGETS_OWN


def without_prefix(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without ``model.``. Raises ValueError for a tensor that is there with and without."""
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        short = name.removeprefix(PREFIX)
        if short in plain:
            raise ValueError(f"{short}: expected one tensor, found it with and without {PREFIX}")
        plain[short] = tensor
    return plain


def split_fused(tensors: Mapping[str, Tensor], config: DFlashConfig) -> dict[str, Tensor]:
    """``qkv_proj`` and ``gate_up_proj``, weights and biases, taken apart. Raises ValueError for another height."""
    heads = {"q": config.query_width, "k": config.kv_width, "v": config.kv_width}
    halves = {"gate": config.intermediate_size, "up": config.intermediate_size}
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for fused, parts in (("qkv_proj", heads), ("gate_up_proj", halves)):
            if f".{fused}." in name:
                found |= _split(name, fused, tensor, parts)
                break
        else:
            found[name] = tensor
    return found


def _split(name: str, fused: str, tensor: Tensor, parts: Mapping[str, int]) -> dict[str, Tensor]:
    rows = sum(parts.values())
    if tensor.shape[:1] != (rows,):
        sizes = " + ".join(map(str, parts.values()))
        raise ValueError(f"{name}: expected {rows} rows ({sizes}), found {list(tensor.shape)}")
    pieces = torch.split(tensor, list(parts.values()))
    return {
        name.replace(fused, f"{part}_proj"): piece
        for part, piece in zip(parts, pieces, strict=True)
    }


def to_rows_of_8_bits(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix [out, in] to int8 [out, in] and the scale of each row, float16 [out].

    No entry is off by more than half a scale. Raises ValueError for entries that are not finite or too large.
    """
    largest = matrix.float().abs().amax(dim=1)
    half = torch.finfo(torch.float16)
    if not bool((largest / 127 <= half.max).all()):  # false for NaN too
        raise ValueError(f"8-bit rows: expected finite entries, found one of size {largest.max()}")
    scale = (largest / 127).clamp(min=half.tiny).half()
    rounded = (matrix.float() / scale.float()[:, None]).round().clamp(-127, 127)
    return rounded.to(torch.int8), scale


def from_rows_of_8_bits(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices stored as int8 with their scales, as float32; other tensors as they are.

    Raises ValueError for int8 without a scale, a scale without int8 and a scale of another length.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in tensors:
            stored = tensors[name.removesuffix(SCALE)]
            if stored.dtype is not torch.int8:
                raise ValueError(f"{name.removesuffix(SCALE)}: expected int8, found {stored.dtype}")
        elif tensor.dtype is torch.int8:
            found[name] = tensor.float() * _scale(name, tensor, tensors)[:, None]
        else:
            found[name] = tensor
    return found


def _scale(name: str, matrix: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
    scale = tensors.get(name + SCALE)
    if scale is None or scale.shape != matrix.shape[:1]:
        shape = "no tensor" if scale is None else list(scale.shape)
        raise ValueError(f"{name + SCALE}: expected {list(matrix.shape[:1])}, found {shape}")
    return scale.float()


def draft_ids(tensors: Mapping[str, Tensor], vocab_size: int) -> Tensor | None:
    """The tokens of a reduced vocabulary, int64 ascending, from d2t or t2d or both; None if neither is there.

    Raises ValueError for maps of another size or two that contradict each other.
    """
    offsets, mask = tensors.get(DRAFT_TO_TARGET), tensors.get(TARGET_TO_DRAFT)
    if mask is not None and mask.shape != (vocab_size,):
        raise ValueError(f"{TARGET_TO_DRAFT}: expected [{vocab_size}], found {list(mask.shape)}")
    from_mask = None if mask is None else mask.bool().nonzero().flatten()
    if offsets is None:
        return from_mask
    if offsets.ndim != 1:
        raise ValueError(f"{DRAFT_TO_TARGET}: expected one axis, found {list(offsets.shape)}")
    ids = (offsets.long() + torch.arange(len(offsets))).sort().values
    if from_mask is not None and not torch.equal(ids, from_mask):
        raise ValueError(
            f"{DRAFT_TO_TARGET}: expected the {len(from_mask)} tokens of {TARGET_TO_DRAFT}, "
            f"found {len(ids)} that aren't all the same"
        )
    return ids
