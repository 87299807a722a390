"""Where a recording comes from: rank, versions, server arguments without secrets, the code that was watched."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from engine.sglang.assemble import Origin

# Text is kept only where its name says that it is a setting; numbers and switches unless it says secret.
PLAIN_TEXT = re.compile(
    r"(^speculative_|_backend$|dtype|_path$|^quantization$|_policy$|_mode$|^device$|^served_model_name$|^load_format$)"
)
SECRET = re.compile(
    r"(key|secret|passw|credential|auth|cert|(^|_)(api|admin|hf|access|bearer)_)", re.I
)
LEFT_OUT = "(left out)"
PACKAGES = ("sglang", "sglang-kernel", "torch", "triton", "flashinfer-python", "ddtree-workbench")
PLACES = (
    *("tp_rank", "tp_size", "dp_rank", "dp_size", "pp_rank", "pp_size"),
    *("attn_tp_rank", "attn_tp_size", "attn_dp_rank"),
)
MAX_TEXT = 500


@dataclass(frozen=True)
class Watched:
    """The source of one watched function: file, lines from 1, SHA-256 of its text."""

    path: str
    file: str
    first_line: int
    last_line: int
    sha256: str


def watched(path: str, function: Callable[..., Any]) -> Watched:
    """Raises ``OSError`` or ``TypeError`` where its source cannot be had."""
    lines, first = inspect.getsourcelines(function)
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    file = inspect.getsourcefile(function) or "?"
    return Watched(path, file, first, first + len(lines) - 1, digest)


def versions() -> dict[str, str]:
    """Of the packages that matter, and of Python."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def server_arguments(arguments: Any) -> dict[str, Any]:
    """Settings that may be shown; what may hold a secret is named and left out."""
    kept: dict[str, Any] = {}
    for name, value in sorted(vars(arguments).items()):
        if name.startswith("_") or not isinstance(value, (bool, int, float, str, type(None))):
            continue
        if value is None or isinstance(value, (bool, int, float)):
            kept[name] = LEFT_OUT if SECRET.search(name) and value is not None else value
        else:
            kept[name] = _text(name, value)
    return kept


def _text(name: str, value: str) -> str:
    """A path may be an address with a password in it."""
    if SECRET.search(name) or not PLAIN_TEXT.search(name):
        return LEFT_OUT
    return LEFT_OUT if "@" in value or "://" in value else value[:MAX_TEXT]


def origin_of(scheduler: Any) -> tuple[Origin, dict[str, Any]]:
    """Place of this process among the server's, as the scheduler knows it; and the sizes themselves."""
    sizes = {name: _place(scheduler, name) for name in PLACES}
    arguments = getattr(scheduler, "server_args", None)
    for name in ("tp_size", "dp_size", "pp_size"):
        sizes[name] = sizes[name] or getattr(arguments, name, None)
    attention = bool(getattr(arguments, "enable_dp_attention", False))
    side = "attn_tp" if attention and sizes["attn_tp_size"] else "tp"
    data = sizes["attn_dp_rank"] if attention else sizes["dp_rank"]
    places = (("dp", data, sizes["dp_size"]), ("pp", sizes["pp_rank"], sizes["pp_size"]))
    group = "-".join(f"{name}{rank or 0}" for name, rank, size in places if (size or 1) > 1)
    origin = Origin(
        version=versions().get("sglang", "unknown"),
        rank=sizes[f"{side}_rank"] or 0,
        world_size=sizes[f"{side}_size"] or 1,
        model=_model(arguments),
        group=group,
    )
    return origin, sizes


def _model(arguments: Any) -> str | None:
    path = getattr(arguments, "model_path", None)
    return _text("model_path", path) if isinstance(path, str) else None


def _place(scheduler: Any, name: str) -> int | None:
    """From the scheduler, its parallel state, or the process's context: versions keep it in different places."""
    context = getattr(sys.modules.get("sglang.srt.runtime_context"), "get_parallel", None)
    holders = [scheduler, getattr(scheduler, "ps", None)]
    for holder in (*holders, context() if context is not None else None):
        value = getattr(holder, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
