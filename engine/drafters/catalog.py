"""What a user may name as a drafter: dflash (the bundled one of a model), oracle, prompt-lookup, or a DFlash folder."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from engine.decoding.accept import Sampler
from engine.drafters.base import Drafter
from engine.drafters.dflash import DFlashDrafter
from engine.drafters.oracle import OracleDrafter
from engine.drafters.prompt_lookup import PromptLookupDrafter
from engine.models.catalog import Target, source_of
from engine.models.dflash import DFlash
from engine.models.dflash_weights import load_dflash

DRAFTERS = ("dflash", "oracle", "prompt-lookup")
BUNDLED = ("smollm2",)  # models that a drafter comes with


def dflash_folder(name: str, model: str) -> Path:
    """The folder of ``dflash`` (bundled with ``model``), or of a path. Raises ``ValueError`` with the ways out."""
    if name == "dflash":
        if model in BUNDLED:
            return Path(str(files("fixtures"))) / "drafters" / model
        source_of(model)  # a name that is no model's is said first
        raise ValueError(
            f"drafter dflash: expected a model that one is bundled with ({', '.join(BUNDLED)}), found {model}. "
            f"Either give a DFlash folder, or train one with ddtree train-drafter, or choose oracle or prompt-lookup."
        )
    path = Path(name).expanduser()
    if not (path / "config.json").is_file():
        raise ValueError(
            f"drafter: expected one of {', '.join(DRAFTERS)} or a DFlash folder with config.json, found {name!r}"
        )
    return path


def check_drafter(name: str, model: str) -> None:
    """Raises ``ValueError`` for a drafter that cannot be had for this model; nothing is loaded."""
    if name not in ("oracle", "prompt-lookup"):
        dflash_folder(name, model)


@lru_cache(maxsize=1)
def _loaded(folder: Path, target: Target) -> DFlash:
    return load_dflash(folder, target.model)


def dflash_model(name: str, target: Target) -> DFlash:
    """The DFlash model itself, loaded once. Raises ``ValueError`` as :func:`dflash_folder` does."""
    return _loaded(dflash_folder(name, target.name), target)


def make_drafter(
    name: str,
    target: Target,
    block_size: int,
    *,
    accuracy: float,
    sampler: Sampler,
    max_context: int,
) -> Drafter:
    """A drafter for one run. ``accuracy`` and ``max_context`` are the oracle's; a DFlash model is loaded once.

    Raises ``ValueError`` for a folder that does not fit the target, or a block size beyond the trained one.
    """
    if name == "prompt-lookup":
        return PromptLookupDrafter(block_size, target.model.config.vocab_size)
    if name == "oracle":
        return OracleDrafter(
            target.model,
            block_size,
            accuracy=accuracy,
            seed=sampler.seed,
            sampler=sampler,
            max_context=max_context,
        )
    model = dflash_model(name, target)
    return DFlashDrafter(model, target.model, block_size=block_size)
