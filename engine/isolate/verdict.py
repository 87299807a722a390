"""Verdict of an experiment: what kind of trouble it is, which factor it hangs on, and the cells that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.isolate.cell import Cell, Factor


class Kind(StrEnum):
    """What an experiment shows."""

    NOTHING = "nothing measured"
    CLEAN = "clean"
    NEAR_TIE = "near-tie"
    SAMPLED = "sampled"  # nothing is wrong, but sampled texts of a server are not compared
    NONDETERMINISTIC = "non-deterministic"
    LATENT = "latent"  # every text is right, yet the checks find a fault
    SLOW = "lossless but slow"
    WRONG = "wrong"
    FAILED = "failed"


@dataclass(frozen=True)
class Pair:
    """Two measured cells in which one prompt was decoded, and which differ for it in one factor alone."""

    factor: Factor
    broken: Cell
    other: Cell
    prompt: int  # index


@dataclass(frozen=True)
class Verdict:
    """``factors`` is empty where nothing is wrong, where everything is, and where no condition fits."""

    kind: Kind
    sentence: str  # all of it, for the top of a page
    factors: tuple[Factor, ...] = ()
    condition: str | None = None  # "q_len ≠ block size 8"; None: no condition was found
    path: str | None = None  # which part of the code depends on that
    proof: tuple[Pair, ...] = ()  # broken here, right there
    without_effect: tuple[Pair, ...] = ()  # broken in both: the factor does not matter
    missing: tuple[Cell, ...] = ()  # would tell apart what the measured cells do not
    cause: str | None = None  # of the checks, where it fits the same cells
