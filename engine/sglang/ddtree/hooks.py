"""Hooks that DDTREE needs in SGLang's own functions; all do nothing where another algorithm is served.

| function | why |
| --- | --- |
| ``scheduler.validate_dflash_request`` | refuses what a tree would serve wrongly |
| ``TritonAttnBackend.init_cuda_graph_state`` | its mask buffer is too short at the context limit |
| ``TritonAttnBackend.__init__`` | ``DDTREE_FAULT=verify-width`` alone: block size rows a request, eager and in graphs |
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from engine.sglang.ddtree.options import options_of
from engine.sglang.ddtree.refusals import refuse_request

NAME = "DDTREE"
VALIDATE = "sglang.srt.managers.scheduler.validate_dflash_request"
BACKEND = "sglang.srt.layers.attention.triton_backend.TritonAttnBackend"
INIT, GRAPH_STATE = f"{BACKEND}.__init__", f"{BACKEND}.init_cuda_graph_state"


def served(server_args: Any) -> bool:
    """Whether these arguments ask for DDTREE."""
    return str(getattr(server_args, "speculative_algorithm", None)).upper() == NAME


def _global_args() -> Any:
    from sglang.srt.server_args import get_global_server_args

    return get_global_server_args()


def validate(original: Callable[[Any], str | None], req: Any) -> str | None:
    """Around ``validate_dflash_request``."""
    refusal = refuse_request(req) if served(_global_args()) else None
    return refusal or original(req)


def wide_mask(
    original: Callable[..., None],
    backend: Any,
    max_bs: int,
    max_num_tokens: int,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Around ``init_cuda_graph_state``: a mask buffer for ``max_bs`` requests at the context limit."""
    original(backend, max_bs, max_num_tokens, *args, **kwargs)
    if not served(_global_args()):
        return
    buffer = getattr(backend, "cuda_graph_custom_mask", None)
    needed = graph_mask_cells(max_bs, max_num_tokens, int(backend.max_context_len))
    if buffer is not None and len(buffer) < needed:
        backend.cuda_graph_custom_mask = torch.zeros(
            needed, dtype=buffer.dtype, device=buffer.device
        )


def graph_mask_cells(max_bs: int, max_num_tokens: int, max_context_len: int) -> int:
    """Cells of ``max_num_tokens`` rows, each with the longest prefix and its request's rows as columns."""
    return max_num_tokens * (max_context_len + max_num_tokens // max_bs)


def break_width(
    original: Callable[..., None], backend: Any, model_runner: Any, *args: Any, **kwargs: Any
) -> None:
    """Around the backend's constructor: the public fault, ``num_draft_tokens`` left at the drafter's block size."""
    original(backend, model_runner, *args, **kwargs)
    arguments = model_runner.server_args
    if served(arguments) and not model_runner.is_draft_worker:
        backend.num_draft_tokens = options_of(arguments, os.environ).attention_width
