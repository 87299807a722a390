"""Files out of SGLang's wheels for the tests: fetched once with pip, without dependencies, never installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

from engine.models.cache import cache_folder
from engine.sglang.table import ATTRIBUTES, TARGETS

KERNELS = (
    "sglang/_version.py",
    "sglang/version.py",
    "sglang/srt/environ.py",
    "sglang/srt/layers/attention/triton_ops/extend_attention.py",
    "sglang/srt/layers/attention/triton_ops/prefill_attention.py",
    "sglang/kernels/ops/attention/extend_attention.py",
    "sglang/kernels/ops/attention/decode_attention.py",
    "sglang/kernels/ops/attention/score_mod.py",
)
REGISTRY = "sglang/srt/plugins/hook_registry.py"
ALGORITHM = (  # what DDTREE builds on, imported or read
    "sglang/srt/distributed/parallel_state.py",
    "sglang/srt/layers/attention/triton_backend.py",
    "sglang/srt/layers/attention/triton_ops/decode_attention.py",
    "sglang/srt/layers/attention/utils.py",
    "sglang/srt/layers/sampler.py",
    "sglang/srt/managers/schedule_batch.py",
    "sglang/srt/managers/scheduler.py",
    "sglang/srt/managers/tp_worker.py",
    "sglang/srt/managers/utils.py",
    "sglang/srt/mem_cache/allocator.py",
    "sglang/srt/mem_cache/common.py",
    "sglang/srt/mem_cache/memory_pool.py",
    "sglang/srt/model_executor/cuda_graph_runner.py",
    "sglang/srt/model_executor/forward_batch_info.py",
    "sglang/srt/model_executor/model_runner.py",
    "sglang/srt/model_executor/model_runner_kv_cache_mixin.py",
    "sglang/srt/models/dflash.py",
    "sglang/srt/plugins/__init__.py",
    "sglang/srt/sampling/sampling_batch_info.py",
    "sglang/srt/sampling/sampling_params.py",
    "sglang/srt/server_args.py",
    "sglang/srt/speculative/dflash_info.py",
    "sglang/srt/speculative/dflash_utils.py",
    "sglang/srt/speculative/dflash_worker.py",
    "sglang/srt/speculative/spec_info.py",
    "sglang/srt/speculative/spec_registry.py",
    "sglang/srt/speculative/spec_utils.py",
    "sglang/srt/speculative/triton_ops/fused_kv_materialize.py",
)
OPTIONS = ("--no-deps", "--only-binary=:all:", "--python-version=3.12", "--no-cache-dir", "-q")
PATIENCE = 120  # seconds
DONE = "complete"  # names what was taken out: a longer list fetches again


def file_of(path: str) -> str:
    """The file that holds ``module.Class.method`` or ``module.function``."""
    parts = path.split(".")
    module = [part for part in parts[:-1] if part[0].islower()]
    return "/".join(module) + ".py"


WATCHED = {file_of(t.path) for t in TARGETS} | {file_of(a.path) for a in ATTRIBUTES}
WANTED = sorted({*KERNELS, *WATCHED, *ALGORITHM, REGISTRY})


def sglang_folder(version: str = "0.5.12") -> Path:
    """The folder with the kernels and the watched files of a version; skips the test where they cannot be had."""
    folder, reason = _fetched(version)
    if reason:
        pytest.skip(f"the wheel of sglang {version} cannot be had: {reason}")
    return folder


@cache
def _fetched(version: str) -> tuple[Path, str]:
    folder = cache_folder() / "sglang" / version
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        done = folder / DONE
        if done.exists() and {*WANTED} <= {*done.read_text().split("\n")}:
            return folder, ""
        folder.mkdir(exist_ok=True)
        try:
            reason = _fetch(version, folder)
        except (OSError, subprocess.TimeoutExpired, zipfile.BadZipFile) as error:
            reason = str(error)
        if not reason:
            done.write_text("\n".join(WANTED))
    return folder, reason


def _fetch(version: str, folder: Path) -> str:
    """The last line of pip's complaint, empty if it succeeded."""
    command = [sys.executable, "-m", "pip", "download", *OPTIONS, "--dest", str(folder)]
    done = subprocess.run(
        [*command, f"sglang=={version}"], capture_output=True, text=True, timeout=PATIENCE
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        return (done.stderr.strip() or "pip gave no reason").rpartition("\n")[2]
    with zipfile.ZipFile(wheels[0]) as archive:
        names = set(archive.namelist())
        archive.extractall(folder, [name for name in WANTED if name in names])
    wheels[0].unlink()
    return ""
