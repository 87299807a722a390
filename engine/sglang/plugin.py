"""Entry point ``ddtree`` of the group ``sglang.srt.plugins``: hooks on, if ``DDTREE_TRACE_DIR`` names a directory.

    pip install --no-deps ddtree-workbench
    DDTREE_TRACE_DIR=/tmp/trace python -m sglang.launch_server …

Further settings: ``DDTREE_TRACE_FORMAT`` (auto, jsonl, arrow), ``DDTREE_TRACE_MAX_BYTES`` (of all parts of a rank),
``DDTREE_TRACE_HOOKS`` (``module.Class.verify``, comma-separated: verifications of algorithms from outside that take
``batch`` and ``logits_output``, or the arguments of ``eagle_sample``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

DIRECTORY = "DDTREE_TRACE_DIR"
SCHEDULER = "sglang.srt.managers.scheduler"


def register() -> None:
    """Called by SGLang in each of its processes; does nothing but in schedulers, and nothing unless asked to."""
    if os.environ.get(DIRECTORY) and SCHEDULER in sys.modules:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        from engine.sglang.attach import attach

        def hook_on(path: str, hook: Any) -> None:
            HookRegistry.register(path, hook, HookType.AROUND)

        attach(Path(os.environ[DIRECTORY]), hook_on, dict(os.environ))
