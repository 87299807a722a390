"""The tensors of a folder of safetensors files, single or sharded. Files in any other format are
not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.models.jsonfile import read_object

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """Where each tensor lies and how large it is."""

    files: Mapping[str, Path]  # tensor name to its file
    shapes: Mapping[str, tuple[int, ...]]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor once, on the CPU in its stored dtype, a file at a time."""
        for file in sorted(set(self.files.values())):
            with _opened(file) as handle:
                for name in sorted(name for name, place in self.files.items() if place == file):
                    yield name, handle.get_tensor(name)


def open_checkpoint(folder: Path) -> Checkpoint:
    """List the tensors of ``folder``. Raises ValueError for a missing or damaged file."""
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in _files(folder):
        for name, shape in _shapes(file).items():
            if name in files:
                raise ValueError(f"{file}: tensor {name} is also in {files[name].name}")
            files[name], shapes[name] = file, shape
    return Checkpoint(files, shapes)


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        return _indexed_files(folder)
    found = (
        [folder / SINGLE] if (folder / SINGLE).is_file() else sorted(folder.glob("*.safetensors"))
    )
    if not found:
        raise ValueError(f"{folder}: expected {SINGLE} or {INDEX}, found no safetensors file")
    return found


def _indexed_files(folder: Path) -> list[Path]:
    """The files of the index, each of which must hold what the index says of it."""
    weight_map = read_object(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{folder / INDEX}: expected an object weight_map, found {weight_map!r}")
    for name in set(weight_map.values()):
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise ValueError(f"{folder / INDEX}: expected a file beside the index, found {name!r}")
    files = sorted({folder / name for name in weight_map.values()})
    present = {(tensor, file.name) for file in files for tensor in _shapes(file)}
    lost = sorted(set(weight_map.items()) - present)
    if lost:
        raise ValueError(f"{folder / INDEX}: tensors that aren't in their files: {lost}")
    return files


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    with _opened(file) as handle:
        return {name: tuple(handle.get_slice(name).get_shape()) for name in handle.keys()}  # noqa: SIM118


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, framework="pt") as handle:
            yield handle
    except SafetensorError as error:
        raise ValueError(f"{file}: not a readable safetensors file ({error})") from error
