"""One cell of an experiment: a value for each thing that is varied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Factor(StrEnum):
    """What is varied. The value of each names the field of :class:`Cell` that holds it."""

    BUDGET = "budget"
    TOPK = "topk"
    GRAPHS = "graphs"
    BATCH = "batch"
    PROMPT = "prompt"
    TEMPERATURE = "temperature"
    SEED = "seed"


Value = int | float | bool | None
MOST_BATCH = 1024  # each of them is a request that is judged by itself


@dataclass(frozen=True, order=True)
class Cell:
    """One setting of every factor."""

    budget: int  # nodes a tree, without the root
    topk: int | None  # ranks that a depth may use; None: no cap
    graphs: bool  # steps are replayed from captured graphs
    batch: int  # prompts decoded together
    prompt: int  # index of the first of them; the others follow it, from the start again at the end
    temperature: float
    seed: int

    def __post_init__(self) -> None:
        for name, least in (("budget", 1), ("batch", 1), ("prompt", 0), ("seed", 0)):
            if (found := getattr(self, name)) < least:
                raise ValueError(f"{name}: expected at least {least}, found {found}")
        if self.batch > MOST_BATCH:
            raise ValueError(f"batch: expected at most {MOST_BATCH}, found {self.batch}")
        if self.topk is not None and self.topk < 1:
            raise ValueError(f"topk: expected at least 1, or none, found {self.topk}")
        if not 0.0 <= self.temperature <= 100.0:
            raise ValueError(f"temperature: expected 0 … 100, found {self.temperature}")

    @property
    def q_len(self) -> int:
        """Rows of one request in verify."""
        return self.budget + 1

    def value(self, factor: Factor) -> Value:
        """The value of one factor."""
        found: Value = getattr(self, factor.value)
        return found

    def with_value(self, factor: Factor, value: Value) -> Cell:
        """The cell that differs in one factor."""
        changes: dict[str, Any] = {factor.value: value}
        return replace(self, **changes)

    def differs_in(self, other: Cell) -> tuple[Factor, ...]:
        """The factors in which two cells differ."""
        return tuple(factor for factor in Factor if self.value(factor) != other.value(factor))

    @property
    def key(self) -> str:
        """Its name in files: letters, digits, ``.`` and ``-``."""
        graphs = "graphs" if self.graphs else "eager"
        topk = "all" if self.topk is None else self.topk
        sampled = f"-t{self.temperature:g}-s{self.seed}" if self.temperature or self.seed else ""
        return f"b{self.budget}-k{topk}-{graphs}-n{self.batch}-p{self.prompt}{sampled}"

    def __str__(self) -> str:
        return ", ".join(phrase(factor, self.value(factor)) for factor in Factor)


def phrase(factor: Factor, value: Value) -> str:
    """``budget 16``, ``top-k 4``, ``graphs on``."""
    if factor is Factor.GRAPHS:
        return "graphs on" if value else "graphs off"
    if factor is Factor.TOPK:
        return "top-k without a cap" if value is None else f"top-k {value}"
    return f"{factor} {value:g}"
