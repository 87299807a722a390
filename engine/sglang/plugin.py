"""Entry point ``ddtree`` of the group ``sglang.srt.plugins``: hooks on, if ``DDTREE_TRACE_DIR`` names a directory.

    pip install --no-deps ddtree-workbench
    DDTREE_TRACE_DIR=/tmp/trace python -m sglang.launch_server …

Further settings: ``DDTREE_TRACE_FORMAT`` (auto, jsonl, arrow), ``DDTREE_TRACE_MAX_BYTES`` (of all parts of a rank),
``DDTREE_TRACE_HOOKS`` (``module.Class.verify``, comma-separated: verifications of algorithms from outside that take
``batch`` and ``logits_output``, or the arguments of ``eagle_sample``). ``DDTREE_TIMES``: :mod:`engine.sglang.times`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

DIRECTORY, TIMES = "DDTREE_TRACE_DIR", "DDTREE_TIMES"
SCHEDULER = "sglang.srt.managers.scheduler"


def register() -> None:
    """Called by SGLang in each of its processes; does nothing but in schedulers, and nothing unless asked to."""
    asked = {name for name in (DIRECTORY, TIMES) if os.environ.get(name)}
    if not asked or SCHEDULER not in sys.modules:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def hook_on(path: str, hook: Any) -> None:
        HookRegistry.register(path, hook, HookType.AROUND)

    if TIMES in asked:
        from engine.sglang.times import watch

        watch(hook_on, dict(os.environ))
    if DIRECTORY in asked:
        from engine.sglang.attach import attach

        attach(Path(os.environ[DIRECTORY]), hook_on, dict(os.environ))
