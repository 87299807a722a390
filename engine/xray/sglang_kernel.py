"""SGLang's own extend-attention kernels, imported without its server.

The module is looked for where SGLang keeps it: ``sglang/srt/layers/attention/triton_ops/extend_attention.py`` until
0.5.15, ``sglang/kernels/ops/attention/extend_attention.py`` from 0.5.16 on. Its packages' ``__init__`` would import the
whole server, so while it is imported its packages are bare namespaces and ``sglang.srt.utils`` is a stand-in that only
says what the device is; ``sys.modules`` is afterwards what it was before.

The folder is ``--sglang-path``, else ``DDTREE_SGLANG_PATH``, else the installed package. Nothing of it is kept here.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.xray.errors import XRayError

VARIABLE = "DDTREE_SGLANG_PATH"
MODULES = (
    "sglang.kernels.ops.attention.extend_attention",
    "sglang.srt.layers.attention.triton_ops.extend_attention",
)
ARGUMENTS = [
    *("q_extend", "k_extend", "v_extend", "o_extend", "k_buffer", "v_buffer", "qo_indptr"),
    *("kv_indptr", "kv_indices", "custom_mask", "is_causal", "mask_indptr", "max_len_extend"),
]
UTILS = "sglang.srt.utils"


@dataclass(frozen=True, eq=False)
class SGLangKernels:
    """The functions of one version."""

    version: str
    extend_attention_fwd: Callable[..., None]
    extend_attention_fwd_unified: Callable[..., None] | None
    build_unified_kv_indices: Callable[..., Any] | None
    takes_scales: bool  # k_scale and v_scale are arguments


def find_folder(chosen: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds ``sglang/``. Raises :class:`XRayError` where there is none."""
    named = chosen or os.environ.get(VARIABLE)
    if named:
        folder = Path(named).expanduser()
        folder = folder.parent if folder.name == "sglang" else folder
        if not any(_file_of(folder, module).is_file() for module in MODULES):
            raise XRayError(
                f"{named}: expected a folder with SGLang's {MODULES[0].replace('.', '/')}.py "
                f"(or {MODULES[1].replace('.', '/')}.py), found neither"
            )
        return folder
    spec = importlib.util.find_spec("sglang")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise XRayError(
            "sglang is not installed: give --sglang-path (an unpacked wheel; `pip download --no-deps "
            f"sglang==0.5.12` gets one) or set {VARIABLE}"
        )
    return Path(places[0]).parent


def load_sglang(
    chosen: str | os.PathLike[str] | None = None, *, cuda: bool = False
) -> SGLangKernels:
    """Import the kernels. Raises :class:`XRayError` where they are missing or are not those that are known."""
    folder = find_folder(chosen)
    name = next((m for m in MODULES if _file_of(folder, m).is_file()), None)
    if name is None:
        raise XRayError(f"{folder}: expected SGLang's extend_attention.py, found none")
    with _stand_ins(folder, name, cuda):
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            raise XRayError(f"{folder}: {name} cannot be imported alone: {error}") from error
    function = getattr(module, "extend_attention_fwd", None)
    found = [] if function is None else list(inspect.signature(function).parameters)
    if function is None or found[: len(ARGUMENTS)] != ARGUMENTS:
        raise XRayError(
            f"{folder}: extend_attention_fwd: expected arguments {', '.join(ARGUMENTS)} …, "
            f"found {', '.join(found[: len(ARGUMENTS)]) or 'no such function'}"
        )
    return SGLangKernels(
        _version(folder),
        function,
        getattr(module, "extend_attention_fwd_unified", None),
        getattr(module, "build_unified_kv_indices", None),
        "k_scale" in found,
    )


def _file_of(folder: Path, module: str) -> Path:
    return folder.joinpath(*module.split(".")).with_suffix(".py")


def _version(folder: Path) -> str:
    for file in ("_version.py", "version.py"):
        path = folder / "sglang" / file
        if path.is_file():
            text = path.read_text("utf-8", "replace")
            found = re.search(r"^__version__\s*(?:=\s*\w+\s*)*=\s*['\"]([^'\"]+)", text, re.M)
            if found:
                return found[1]
    wheels = sorted(folder.glob("sglang-*.dist-info"))
    return wheels[0].name.split("-")[1].removesuffix(".dist") if wheels else "of unknown version"


@contextmanager
def _stand_ins(folder: Path, module: str, cuda: bool) -> Iterator[None]:
    """Bare packages and a stand-in for the utilities; everything of SGLang's is taken out again."""
    before = {name: found for name, found in sys.modules.items() if _is_sglang(name)}
    for name in before:
        del sys.modules[name]
    try:
        for package in (*_packages(module), "sglang.srt"):
            bare = types.ModuleType(package)
            bare.__path__ = [str(folder.joinpath(*package.split(".")))]
            sys.modules[package] = bare
        sys.modules[UTILS] = _utils(cuda)
        yield
    finally:
        for name in [name for name in sys.modules if _is_sglang(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_sglang(name: str) -> bool:
    return name == "sglang" or name.startswith("sglang.")


def _packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _utils(cuda: bool) -> types.ModuleType:
    """Answers for a CUDA device or none; what is asked of no other device is no."""
    stand_in = types.ModuleType(UTILS)
    answers = dict.fromkeys(
        ("is_hip", "is_gfx95_supported", "is_gfx1250_supported", "is_xpu", "is_npu"), False
    )
    for name, answer in (answers | {"is_cuda": cuda}).items():
        setattr(stand_in, name, lambda answer=answer: answer)
    stand_in.get_device_core_count = lambda device_id=0: 1  # type: ignore[attr-defined]
    return stand_in
