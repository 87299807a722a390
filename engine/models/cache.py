"""The cache folder of converted models, and entries in it that exist whole or not at all.

An entry is made under a lock file, so two callers never make it twice; what an interrupted caller
left is removed by the next one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from engine.models.progress import ProgressFn, report

PARTIAL_MARK = ".partial-"  # in the name of a folder that is not complete yet

VARIABLE = "DDTREE_CACHE"
NAME = "ddtree-workbench"
BLOCK = 1 << 20  # bytes


def cache_folder() -> Path:
    """$DDTREE_CACHE, or the user's cache folder of this platform; it need not exist."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return expanded(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / NAME
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / NAME
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / NAME


def expanded(text: str) -> Path:
    """``~`` and ``~user`` made out where there is such a user; any other text as it is."""
    return Path(os.path.expanduser(text))


def model_entry(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of entry ``name``, made by ``make(folder)`` unless it is there.

    ``make`` must create the folder in one step (rename), from partial folders beside it that carry
    PARTIAL_MARK.
    """
    folder = cache_folder() / "models" / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f"{name}.lock"):
        if not folder.is_dir():
            for left in folder.parent.glob(f"{name}{PARTIAL_MARK}*"):
                shutil.rmtree(left)
            make(folder)
    return folder


def sha256_of(file: Path, progress: ProgressFn | None = None) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    digest, size, done = hashlib.sha256(), max(file.stat().st_size, 1), 0
    with file.open("rb") as handle:
        while block := handle.read(BLOCK):
            digest.update(block)
            done += len(block)
            report(progress, f"Checking {file.name}", done / size)
    return digest.hexdigest()
