"""Entry point ``ddtree-speculative`` of the group ``sglang.srt.plugins``: registers DDTREE in a server's processes.

Nothing happens where SGLang has no registry of algorithms (before 0.5.12). Hooks go into schedulers alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from engine.sglang.ddtree import hooks
from engine.sglang.ddtree.arguments import settle
from engine.sglang.ddtree.faults import Fault
from engine.sglang.ddtree.options import FAULT

SCHEDULER = "sglang.srt.managers.scheduler"


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    if not hasattr(SpeculativeAlgorithm, "register"):
        return
    SpeculativeAlgorithm.register(
        hooks.NAME,
        supports_overlap=False,
        validate_server_args=_validate,
        spec_class=_algorithm_class(),
    )(_worker)
    if SCHEDULER in sys.modules:
        _hook_on()


def _algorithm_class() -> type:
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo

    class DDTree(CustomSpecAlgo):  # type: ignore[misc]
        """Takes DFLASH's branches: captured features, the drafter's KV pool, graphs of the draft forward."""

        def is_dflash(self) -> bool:
            return True

        def is_frozen_kv_mtp(self) -> bool:
            return False  # SGLang's own class asks for it, the registry's lacks it

    return DDTree


def _worker(server_args: Any) -> type:
    from engine.sglang.ddtree.worker import worker_class

    return worker_class()


def _validate(server_args: Any) -> None:
    import sglang

    settle(server_args, os.environ, str(sglang.__version__), _draft_block_size)


def _draft_block_size(server_args: Any) -> int | None:
    """The block size that the drafter's configuration names."""
    import json

    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
    from sglang.srt.utils.hf_transformers_utils import get_config

    config = get_config(
        server_args.speculative_draft_model_path,
        trust_remote_code=server_args.trust_remote_code,
        revision=server_args.speculative_draft_model_revision,
        model_override_args=json.loads(server_args.json_model_override_args),
    )
    size = parse_dflash_draft_config(draft_hf_config=config).resolve_block_size(default=None)
    return None if size is None else int(size)


def _hook_on() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(hooks.VALIDATE, hooks.validate, HookType.AROUND)
    HookRegistry.register(hooks.GRAPH_STATE, hooks.wide_mask, HookType.AROUND)
    if Fault.named(os.environ.get(FAULT)) is Fault.VERIFY_WIDTH:
        HookRegistry.register(hooks.INIT, hooks.break_width, HookType.AROUND)
