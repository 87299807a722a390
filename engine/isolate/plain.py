"""What a server without speculation answered: what each cell of a served experiment is compared with.

A cell is compared with plain decoding of the same batch, asked together as the cell's prompts are, so that nothing but
speculation differs. Each batch is asked twice: with log-probabilities, and without them, as cells are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.isolate.asking import Together, faster
from engine.isolate.cell import Cell
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Compared
from engine.server.trial import first_difference


@dataclass(frozen=True)
class PlainAnswer:
    """One prompt of a batch."""

    text: str
    tokens: tuple[int, ...]
    margins: tuple[float | None, ...]  # of each token over the best other one, in log-probabilities
    again: tuple[int, ...]  # tokens of the second time


@dataclass(frozen=True)
class PlainBatch:
    """One batch, as a line of ``plain.jsonl``."""

    prompts: tuple[str, ...]
    temperature: float
    seed: int  # 0 where nothing is drawn
    answers: tuple[PlainAnswer, ...]
    tokens_per_s: float | None

    def __post_init__(self) -> None:
        if not 0 < len(self.prompts) == len(self.answers):
            raise ValueError(
                f"answers: expected one a prompt ({len(self.prompts)}), found {len(self.answers)}"
            )

    @property
    def key(self) -> Key:
        """What it answers."""
        return self.prompts, self.temperature, self.seed


Key = tuple[tuple[str, ...], float, int]


def key_of(matrix: Matrix, cell: Cell) -> Key:
    """What a cell is compared with. Without a temperature seeds change nothing."""
    return matrix.batch_of(cell), cell.temperature, cell.seed if cell.temperature else 0


def keys_of(matrix: Matrix, known: Iterable[Key]) -> list[Key]:
    """What has to be asked for a matrix, each once, without what is known."""
    wanted = dict.fromkeys(key_of(matrix, cell) for cell in matrix)
    return [key for key in wanted if key not in set(known)]


def plain_batch(key: Key, first: Together, second: Together) -> PlainBatch:
    """From both times that it was asked."""
    answers = tuple(
        PlainAnswer(one.answer.text, one.ids, one.margins, again.ids)
        for one, again in zip(first.said, second.said, strict=True)
    )
    return PlainBatch(*key, answers, faster(first, second))


def compare(
    plain: PlainBatch, first: Together, second: Together, tie: float
) -> tuple[Compared, ...]:
    """Each request of a cell beside plain decoding. ``tie``: log-probabilities that lie closer are a near-tie."""
    pairs = zip(plain.prompts, plain.answers, first.said, second.said, strict=True)
    compared = []
    for prompt, answer, *both in pairs:
        places = [first_difference(answer.tokens, one.ids) for one in both]
        shown = 0 if _late(places[0]) <= _late(places[1]) else 1
        margin = _margin(answer, places[shown], plain.temperature)
        plain_parts = first_difference(answer.tokens, answer.again)
        plain_margin = _margin(answer, plain_parts, plain.temperature)
        speculation = both[shown].answer.speculation
        compared.append(
            Compared(
                prompt=prompt,
                text=both[shown].answer.text,
                plain_text=answer.text,
                tokens=both[shown].ids,
                plain_tokens=answer.tokens,
                first_difference=places[shown],
                margin=margin,
                near_tie=None if margin is None else margin < tie,
                repeats=both[0].ids == both[1].ids,
                plain_parts=plain_parts,
                plain_near_tie=None if plain_margin is None else plain_margin < tie,
                accept_length=None if speculation is None else speculation.accept_length,
                sampled=plain.temperature > 0,
            )
        )
    return tuple(compared)


def _late(place: int | None) -> float:
    return float("inf") if place is None else place


def _margin(answer: PlainAnswer, place: int | None, temperature: float) -> float | None:
    """At the token where texts part; a draw is not decided by it."""
    known = place is not None and place < len(answer.margins) and not temperature
    return answer.margins[place] if known and place is not None else None
