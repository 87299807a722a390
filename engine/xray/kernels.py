"""The kernels that can be X-rayed, chosen by name, under one argument list.

``engine``: this workbench's Triton kernel; ``addressed``: the address formula in torch that the engine decodes with;
``sglang``: SGLang's kernel, the unified one where the step was recorded from deterministic kernels, as its server does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from engine.attention.tree_verify_plan import Plan, query_tile
from engine.xray.errors import XRayError
from engine.xray.sglang_kernel import SGLangKernels, load_sglang


class Kernel(StrEnum):
    """What is X-rayed."""

    ENGINE = "engine"
    ADDRESSED = "addressed"
    SGLANG = "sglang"


@dataclass(frozen=True, eq=False)
class Arguments:
    """Of one launch, all on its device; buffers start where index 0 is, canaries lie around."""

    k_buffer: Tensor  # float32 [slots, heads, dim]
    v_buffer: Tensor
    q_extend: Tensor  # float32 [rows, heads, dim]
    k_extend: Tensor
    v_extend: Tensor
    o_extend: Tensor
    qo_indptr: Tensor  # int64 [batch + 1]
    kv_indptr: Tensor  # int32 [batch + 1]
    kv_indices: Tensor  # int64
    custom_mask: Tensor  # uint8
    mask_indptr: Tensor  # int64 [batch + 1]
    max_len_extend: int
    row_slots: Tensor | None  # int64 [rows sent], None: not recorded
    reads_prefix: bool
    window: int | None
    window_kv_offsets: (
        Tensor | None
    )  # int32 [batch]; then kv_indptr and kv_indices are the window's


@dataclass(frozen=True)
class Runner:
    """A kernel that is ready to run."""

    label: str  # with its version
    tile: int  # rows of one program
    run: Callable[[Arguments], None]


def make_runner(
    kernel: Kernel,
    device: torch.device,
    head_dim: int,
    *,
    reads_prefix: bool,
    sglang_path: str | None = None,
) -> Runner:
    """``reads_prefix``: prefix columns of the mask are to be read, which SGLang leaves to its unified kernel.

    Raises :class:`XRayError` for a kernel that is not to be had here.
    """
    tile = query_tile(head_dim, device)
    if kernel is Kernel.ADDRESSED:
        from engine.layout import QUERY_TILE

        return Runner("addressed formula in torch", QUERY_TILE, _addressed)
    if kernel is Kernel.ENGINE:
        return Runner("engine's Triton kernel", tile, _engine(tile))
    kernels = load_sglang(sglang_path, cuda=device.type == "cuda")
    name = "extend_attention_fwd_unified" if reads_prefix else "extend_attention_fwd"
    label = f"SGLang {kernels.version} {name}"
    return Runner(label, tile, lambda given: _sglang(kernels, given))


def _engine(tile: int) -> Callable[[Arguments], None]:
    from engine.attention import tree_verify

    if tree_verify.triton is None:  # type: ignore[attr-defined]
        raise XRayError("kernel engine: expected Triton to be installed, found none")

    def run(given: Arguments) -> None:
        skips = not given.reads_prefix
        plan = None if given.q_extend.is_cuda else interpreted_plan(given.max_len_extend)
        options = {"skip_prefix_custom_mask": skips, "tile": tile, "plan": plan, **_window(given)}
        tree_verify.tree_verify_triton(*_common(given), **options)

    return run


def interpreted_plan(rows: int) -> Plan:
    """Large tiles, since the interpreter's time goes by their number; two parts, so that parts are merged too."""
    return Plan(64, -(-max(rows, 1) // 64), keys=64, splits=2, least=64, warps=4, stages=1)


def _common(given: Arguments) -> tuple[Any, ...]:
    return (
        given.q_extend,
        given.k_extend,
        given.v_extend,
        given.o_extend,
        given.k_buffer,
        given.v_buffer,
        given.qo_indptr,
        given.kv_indptr,
        given.kv_indices,
        given.custom_mask,
        True,
        given.mask_indptr,
        given.max_len_extend,
    )


def _window(given: Arguments) -> dict[str, Any]:
    """SGLang counts a window without the query itself."""
    if given.window is None:
        return {}
    offsets = given.window_kv_offsets
    return {"sliding_window_size": given.window - 1, "window_kv_offsets": offsets}


def _sglang(kernels: SGLangKernels, given: Arguments) -> None:
    if given.reads_prefix:
        _unified(kernels, given)
        return
    scales = {"k_scale": 1.0, "v_scale": 1.0} if kernels.takes_scales else {}
    kernels.extend_attention_fwd(*_common(given), **scales, **_window(given))


def _unified(kernels: SGLangKernels, given: Arguments) -> None:
    """The deterministic kernel, with the indices that SGLang's backend makes for it in a verify step."""
    run, build = kernels.extend_attention_fwd_unified, kernels.build_unified_kv_indices
    if run is None or build is None:
        raise XRayError(f"SGLang {kernels.version}: expected a unified kernel, found none")
    batch = len(given.qo_indptr) - 1
    if given.row_slots is None:
        raise XRayError("out_cache_loc: the deterministic kernel needs it, found none recorded")
    _never_fall(given, "the deterministic kernel's indices are laid out by them")
    lengths = given.qo_indptr.diff().to(torch.int32)
    kv_indptr, kv_indices, prefix_lens = build(
        given.kv_indptr,
        given.kv_indices,
        given.qo_indptr[:-1].to(torch.int32),
        lengths,
        given.row_slots,
        batch,
    )
    windowed = {}
    if given.window is not None:
        windowed = {
            "sliding_window_size": given.window - 1,
            "window_start_pos": given.window_kv_offsets,
        }
    run(
        given.q_extend,
        given.o_extend,
        given.k_buffer,
        given.v_buffer,
        1.0,
        1.0,
        given.qo_indptr,
        kv_indptr,
        kv_indices,
        prefix_lens.to(torch.int32),
        given.max_len_extend,
        custom_mask=given.custom_mask,
        mask_indptr=given.mask_indptr,
        is_causal=True,
        **windowed,
    )


def _never_fall(given: Arguments, why: str) -> None:
    for name in ("qo_indptr", "kv_indptr"):
        offsets = getattr(given, name)
        if int(offsets[0]) < 0 or bool((offsets.diff() < 0).any()):
            raise XRayError(
                f"{name}: expected offsets that start at 0 or more and never fall ({why}), "
                f"found {offsets.tolist()}"
            )


def _addressed(given: Arguments) -> None:
    """The programs of :mod:`engine.attention.addressed` over their own keys."""
    from engine.attention.addressed import AddressFault, attend, programs_of
    from engine.decoding.metadata import AttentionMetadata

    if given.reads_prefix or given.window is not None:
        what = "windows" if given.window is not None else "prefix columns of the mask"
        raise XRayError(f"kernel addressed: {what} are not covered; expected engine or sglang")
    _never_fall(given, "the formula in torch takes no others")
    if bool((given.mask_indptr < 0).any()):
        found = given.mask_indptr.tolist()
        raise XRayError(
            f"mask_indptr: expected offsets of at least 0 (kernel addressed), found {found}"
        )
    metadata = AttentionMetadata(
        given.qo_indptr,
        given.kv_indptr,
        given.kv_indices,
        given.mask_indptr,
        given.custom_mask,
        given.max_len_extend,
    )
    try:
        for program in programs_of(metadata, len(given.q_extend)):
            keys = torch.cat([given.k_buffer[program.slots], given.k_extend[program.rows]])
            values = torch.cat([given.v_buffer[program.slots], given.v_extend[program.rows]])
            start = program.rows.start
            rows = slice(start, start + len(program.mask))
            given.o_extend[rows] = attend(given.q_extend[rows], keys, values, program.mask)
    except (AddressFault, IndexError) as error:
        raise XRayError(f"kernel addressed: {error}") from error
