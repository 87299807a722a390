"""Matrix: the values of each factor, and the cells that they make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from engine.isolate.cell import Cell

MOST_CELLS = 4096
PROMPTS = (
    "Write a short poem about the ocean.",
    "Explain in two sentences how a hash table finds a key.",
)


@dataclass(frozen=True)
class Matrix:
    """What is varied. Cells come in the order in which a server is started least often."""

    budgets: tuple[int, ...] = (7, 16)
    topks: tuple[int | None, ...] = (1, 4)
    graphs: tuple[bool, ...] = (False, True)
    batches: tuple[int, ...] = (1, 2)
    prompts: tuple[str, ...] = PROMPTS
    used_prompts: tuple[int, ...] = (0, 1)  # indices of prompts that begin a batch
    temperatures: tuple[float, ...] = (0.0,)
    seeds: tuple[int, ...] = (0,)
    max_new_tokens: int = 32

    def __post_init__(self) -> None:
        if not self.prompts or not all(text.strip() for text in self.prompts):
            raise ValueError("prompts: expected at least one, none of them blank")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: expected at least 1, found {self.max_new_tokens}")
        for name in FIELDS:
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name}: expected at least one value, found none")
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: expected each value once, found {list(values)}")
        if worst := [i for i in self.used_prompts if not 0 <= i < len(self.prompts)]:
            raise ValueError(
                f"used_prompts: expected 0 … {len(self.prompts) - 1}, found {worst[0]}"
            )
        if (found := len(self)) > MOST_CELLS:
            raise ValueError(f"matrix: expected at most {MOST_CELLS} cells, found {found}")
        list(self)  # each cell checks itself

    def __len__(self) -> int:
        count = 1
        for name in FIELDS:
            count *= len(getattr(self, name))
        return count

    def __iter__(self) -> Iterator[Cell]:
        for budget, topk, graphs, batch, prompt, temperature, seed in product(
            *(getattr(self, name) for name in FIELDS)
        ):
            yield Cell(budget, topk, graphs, batch, prompt, temperature, seed)

    def batch_of(self, cell: Cell) -> tuple[str, ...]:
        """The prompts of a cell, one a request."""
        texts = self.prompts
        return tuple(texts[(cell.prompt + k) % len(texts)] for k in range(cell.batch))


# In the order of the fields of Cell.
FIELDS = ("budgets", "topks", "graphs", "batches", "used_prompts", "temperatures", "seeds")
