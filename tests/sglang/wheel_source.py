"""The source of SGLang's wheels for the hook tables: fetched with pip without dependencies, read, never imported."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

from engine.models.cache import cache_folder
from engine.sglang.table import ATTRIBUTES, TARGETS

OPTIONS = ("--no-deps", "--only-binary=:all:", "--python-version=3.12", "--no-cache-dir", "-q")
PATIENCE = 120  # seconds
DONE = "complete"
REGISTRY = "sglang/srt/plugins/hook_registry.py"


def file_of(path: str) -> str:
    """The file that holds ``module.Class.method`` or ``module.function``."""
    parts = path.split(".")
    module = [part for part in parts[:-1] if part[0].islower()]
    return "/".join(module) + ".py"


WANTED = sorted({file_of(t.path) for t in TARGETS} | {file_of(a.path) for a in ATTRIBUTES})


def source_folder(version: str) -> Path:
    """The folder with the watched files of a version; skips the test where the wheel cannot be had."""
    folder, reason = _fetched(version)
    if reason:
        pytest.skip(f"the wheel of sglang {version} cannot be had: {reason}")
    return folder


@cache
def _fetched(version: str) -> tuple[Path, str]:
    folder = cache_folder() / "sglang-source" / version
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        done = folder / DONE  # names what was taken out: a longer list fetches again
        if done.exists() and done.read_text() == "\n".join(WANTED):
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
        archive.extractall(folder, [name for name in (*WANTED, REGISTRY) if name in names])
    wheels[0].unlink()
    return ""


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def definition(folder: Path, path: str) -> ast.ClassDef | ast.FunctionDef | None:
    """The class or function that a file defines at a dotted path; None where there is none."""
    file = folder / file_of(path + ("" if not path.split(".")[-1][0].isupper() else ".x"))
    if not file.is_file():
        return None
    body: list[ast.stmt] = _parsed(file).body
    found = None
    for part in path.removeprefix(
        ".".join(file.relative_to(folder).with_suffix("").parts) + "."
    ).split("."):
        kinds = (ast.ClassDef, ast.FunctionDef)
        found = next((n for n in body if isinstance(n, kinds) and n.name == part), None)
        if found is None:
            return None
        body = found.body
    return found


def parameters(folder: Path, path: str) -> tuple[str, ...] | None:
    """Parameters of the function at a path; None where there is none."""
    found = definition(folder, path)
    if not isinstance(found, ast.FunctionDef):
        return None
    given = found.args
    return tuple(a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def attributes(folder: Path, path: str) -> set[str]:
    """Attributes that a class sets on ``self``."""
    found = definition(folder, path)
    return {
        node.attr
        for node in ast.walk(found or ast.Module([], []))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
