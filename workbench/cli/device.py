"""Where a command runs the model: the options, and the target that they load."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from engine.models.catalog import Target


class Dtype(StrEnum):
    """Of weights, hidden states and KV."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
DtypeOption = Annotated[Dtype, typer.Option(help="Of weights and KV.")]


def load(model: str, device: str, dtype: Dtype) -> Target:
    """The target, with a progress bar. Raises ``ValueError`` for a model or a device that cannot be had."""
    from engine.models.catalog import ModelUnavailable, load_target
    from engine.models.device import find_device, find_dtype
    from workbench.cli.progress import shown

    place, kind = find_device(device), find_dtype(dtype)  # said before anything is downloaded
    with shown() as progress:
        try:
            return load_target(model, dtype=kind, device=place, progress=progress)
        except ModelUnavailable as error:
            raise ValueError(str(error)) from error
