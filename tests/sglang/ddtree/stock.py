"""Modules of SGLang's wheel, imported as they are; everything else of the package is a stand-in without behaviour.

What is real is listed in ``REAL``. A module that is not listed answers every name with a class that takes any
arguments, keeps the named ones as attributes, and decorates by doing nothing. SGLang's own code thus runs on the CPU
without its dependencies, and a name that the code under test needs from a stand-in must be given on purpose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

REAL = {
    "sglang.srt.environ",
    "sglang.srt.layers.attention.triton_backend",
    "sglang.srt.layers.attention.triton_ops.decode_attention",
    "sglang.srt.layers.attention.triton_ops.extend_attention",
    "sglang.srt.layers.attention.triton_ops.prefill_attention",
    "sglang.srt.layers.attention.utils",
    "sglang.srt.mem_cache.allocator",
    "sglang.srt.mem_cache.common",
    "sglang.srt.model_executor.forward_batch_info",
    "sglang.srt.plugins.hook_registry",
    "sglang.srt.speculative.dflash_info",
    "sglang.srt.speculative.dflash_utils",
    "sglang.srt.speculative.dflash_worker",
    "sglang.srt.speculative.spec_info",
    "sglang.srt.speculative.spec_registry",
    "sglang.srt.speculative.spec_utils",
    "sglang.srt.speculative.triton_ops.fused_kv_materialize",
}


class _Open(type):
    """A class whose unknown attributes are further stand-ins."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _Open(name, (StandIn,), {})
        setattr(cls, name, value)
        return value


class StandIn(metaclass=_Open):
    """Takes anything; a decorator that changes nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args else None

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class _StandInModule(ModuleType):
    """Answers every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or f"{self.__name__}.{name}" in REAL:
            raise AttributeError(name)  # the import system then looks for the module
        value = _Open(name, (StandIn,), {})
        setattr(self, name, value)
        return value


def _no(*args: Any, **kwargs: Any) -> bool:
    return False


def _utils(module: ModuleType) -> None:
    """What real modules ask of ``sglang.srt.utils`` when they are imported and run."""
    for name in ("is_cuda", "is_hip", "is_npu", "is_musa", "is_xpu", "is_cpu", "is_hpu", "is_mps"):
        setattr(module, name, _no)
    module.next_power_of_2 = lambda n: 1 << max(n - 1, 0).bit_length()  # type: ignore[attr-defined]
    module.get_bool_env_var = _no  # type: ignore[attr-defined]
    module.get_int_env_var = lambda name, default=0: default  # type: ignore[attr-defined]
    module.support_triton = lambda backend: True  # type: ignore[attr-defined]
    module.get_device_core_count = lambda gpu_id=0: 1  # type: ignore[attr-defined]
    module.get_compiler_backend = lambda *a, **k: "eager"  # type: ignore[attr-defined]


class _Finder(MetaPathFinder, Loader):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.split(".")[0] != "sglang":
            return None
        if name in REAL:
            return spec_from_file_location(name, self.folder / f"{name.replace('.', '/')}.py")
        spec = ModuleSpec(name, self)
        spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in ("sglang.srt.utils", "sglang.srt.utils.common"):
            _utils(module)
        if module.__name__ == "sglang":
            module.__version__ = "0.5.12"  # type: ignore[attr-defined]


@contextmanager
def stock(folder: Path) -> Iterator[None]:
    """SGLang importable from an unpacked wheel, forgotten afterwards."""
    finder = _Finder(folder)
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _ours(name)}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _ours(name: str) -> bool:
    return name.split(".")[0] == "sglang"
