"""The table of injectors and how one is applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.decoding.stages import CORRECT, Stages
from engine.faults import commit, mask, position, width


@dataclass(frozen=True)
class Injector:
    """A fault by name. ``apply`` makes the broken stages anew for every run, so no state leaks between runs."""

    name: str
    description: str  # one sentence
    apply: Callable[[Stages], Stages]
    needs_replay: bool = False


_ALL = (
    Injector(
        "verify-width",
        "The attention backend lays out block_size rows a request although budget + 1 rows were sent.",
        width.verify_width,
    ),
    Injector(
        "stale-mask",
        "A graph replay does not refresh the mask buffer: it keeps the tree of the first step.",
        mask.stale_mask,
        needs_replay=True,
    ),
    Injector(
        "padding-leak",
        "Real nodes attend to the padding rows behind them.",
        mask.padding_leak,
    ),
    Injector(
        "sibling-leak",
        "A node attends to its earlier siblings, as if the tree were a chain among them.",
        mask.sibling_leak,
    ),
    Injector(
        "flattened-positions",
        "Rotary positions count rows instead of depths, so siblings stand at different positions.",
        position.flattened_positions,
    ),
    Injector(
        "crop-commit",
        "The KV cache is cropped to the accepted length instead of gathering the accepted nodes.",
        commit.crop_commit,
    ),
)
INJECTORS = {injector.name: injector for injector in _ALL}
FAULTS: tuple[str, ...] = tuple(INJECTORS)


def _named(name: str) -> Injector:
    if name not in INJECTORS:
        raise ValueError(f"fault: expected one of {', '.join(FAULTS)}, found {name!r}")
    return INJECTORS[name]


def describe(name: str) -> str:
    """What a fault does, in one sentence. Raises ``ValueError`` for an unknown name."""
    return _named(name).description


def inject(name: str | None, *, replay: bool) -> Stages:
    """Stages of a run with the named fault (None: the correct ones).

    Raises ``ValueError`` for an unknown name, or for one that needs replay mode in an eager run.
    """
    if name is None:
        return CORRECT
    injector = _named(name)
    if injector.needs_replay and not replay:
        raise ValueError(
            f"fault {name}: needs replay mode, found eager; its buffer exists only there"
        )
    return injector.apply(CORRECT)
