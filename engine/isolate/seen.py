"""One text that was seen: a request of a cell with its own prompt and its place in the batch.

Cells of larger batches hold other prompts too. A prompt that goes wrong among others is compared with the same prompt
alone, not with another one: else a text that shows a fault by chance would be blamed on the batch that it stood in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.isolate.cell import Cell, Factor
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome


@dataclass(frozen=True)
class Seen:
    """A request of a cell. ``prompt``: index of its own, where the cell's is the first one's."""

    cell: Cell
    place: int  # in its batch
    prompt: int

    @property
    def alone(self) -> Cell:
        """The cell of the same settings that begins with this prompt."""
        return self.cell.with_value(Factor.PROMPT, self.prompt)

    def differs_in(self, other: Seen) -> tuple[Factor, ...]:
        """By own prompt; another place in a batch as large counts as another batch."""
        found = self.alone.differs_in(other.alone)
        moved = self.cell.batch == other.cell.batch and self.place != other.place
        return (*found, Factor.BATCH) if moved else found


def of_cell(cell: Cell, prompts: int) -> list[Seen]:
    """Its requests; ``prompts`` there are in the matrix."""
    return [Seen(cell, place, (cell.prompt + place) % prompts) for place in range(cell.batch)]


def seen_with(
    results: Iterable[Measured],
    found: Mapping[Cell, Outcome],
    requests: Mapping[Cell, tuple[Outcome, ...]],
    prompts: int,
) -> Iterator[tuple[Seen, Outcome]]:
    """Each request with its outcome. What is said of a whole cell (it failed, it is slow) counts for all of them."""
    for result in results:
        whole = found[result.cell]
        for seen in of_cell(result.cell, prompts):
            own = requests[result.cell]
            told = whole not in (Outcome.FAILED, Outcome.SLOW) and seen.place < len(own)
            yield seen, own[seen.place] if told else whole
