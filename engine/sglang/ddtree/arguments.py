"""The server's arguments: refuses what DDTREE cannot serve, sets what SGLang sets for DFLASH by that name alone.

Settled twice, arguments come out the same: the sizes lie in SGLang's own fields, ``speculative_num_draft_tokens``
(budget + 1, what the target's backend, graphs and pools are built for) and ``speculative_dflash_block_size``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.sglang.ddtree.options import BUDGET, DEFAULT_BUDGET, Options, number, options_of

CHECKED_VERSION = "0.5.12"
MAX_RUNNING_REQUESTS = 48  # what SGLang sets for its own speculative algorithms
REFUSED = {  # argument: (what is fine, why nothing else is)
    "pp_size": (1, "the drafter has one pipeline stage"),
    "enable_dp_attention": (False, "draft and verify batches are not padded across ranks"),
    "page_size": (1, "single KV slots are remapped"),
    "disaggregation_mode": ("null", "the drafter's features are not transferred"),
    "enable_two_batch_overlap": (False, "a tree mask is not split"),
    "enable_pdmux": (False, "graphs of several streams were not checked"),
    "enable_deterministic_inference": (False, "seeds are not drawn by position in a tree"),
    "enable_hierarchical_cache": (False, "the drafter's KV is not kept with the target's"),
    "speculative_accept_threshold_single": (1.0, "acceptance keeps the target's distribution"),
    "speculative_accept_threshold_acc": (1.0, "acceptance keeps the target's distribution"),
    "speculative_eagle_topk": (1, "set DDTREE_TOPK"),
    "speculative_skip_dp_mlp_sync": (False, "it belongs to EAGLE"),
    "speculative_adaptive": (False, "the width is fixed"),
    "enable_lora": (False, "adapters were not checked with a tree"),
}


def settle(
    server_args: Any,
    environ: Mapping[str, str],
    version: str,
    draft_block_size: Callable[[Any], int | None],
) -> Options:
    """Options of ``server_args``, which is changed in place. Raises ``ValueError`` with a sentence.

    ``draft_block_size`` reads the size that the drafter's own configuration names.
    """
    if version.split("+")[0] != CHECKED_VERSION:
        raise ValueError(f"DDTREE: checked against SGLang {CHECKED_VERSION} alone, found {version}")
    if server_args.speculative_draft_model_path is None:
        raise ValueError("DDTREE: expected --speculative-draft-model-path, found none")
    for name, (fine, why) in REFUSED.items():
        found = getattr(server_args, name)
        if found is not None and found != fine:
            raise ValueError(f"DDTREE: expected {name} = {fine}, found {found}: {why}")
    backends = set(server_args.get_attention_backends())
    if backends != {"triton"}:
        found = ", ".join(sorted(map(str, backends)))
        raise ValueError(f"DDTREE: expected --attention-backend triton, found {found}")
    server_args.speculative_num_draft_tokens = _budget(server_args, environ) + 1
    if server_args.speculative_dflash_block_size is None:
        own = draft_block_size(server_args)
        if own is None:
            raise ValueError(
                "DDTREE: the drafter names no block size; use --speculative-dflash-block-size"
            )
        server_args.speculative_dflash_block_size = own
    options = options_of(server_args, environ)
    _settle_rest(server_args, options)
    return options


def _budget(server_args: Any, environ: Mapping[str, str]) -> int:
    wanted, rows = number(environ, BUDGET), server_args.speculative_num_draft_tokens
    if wanted is None:
        return DEFAULT_BUDGET if rows is None else int(rows) - 1
    if rows is not None and int(rows) != wanted + 1:
        raise ValueError(
            f"{BUDGET}={wanted} needs --speculative-num-draft-tokens {wanted + 1} or none, found {rows}"
        )
    return wanted


def _settle_rest(server_args: Any, options: Options) -> None:
    """What keeps SGLang's own accounting right."""
    window = server_args.speculative_draft_window_size
    if window is not None and int(window) < options.draft_width:
        raise ValueError(
            f"DDTREE: expected --speculative-draft-window-size >= {options.draft_width} (block size), found {window}"
        )
    server_args.speculative_eagle_topk = 1
    # Free slots are asked for max(steps * topk, rows) a request: enough for the drafter's block, too.
    server_args.speculative_num_steps = options.draft_width
    server_args.disable_overlap_schedule = True
    server_args.enable_mixed_chunk = False
    if server_args.max_running_requests is None:
        server_args.max_running_requests = MAX_RUNNING_REQUESTS
