"""Conditions on a cell that a fault may hang on, each with the factors that decide it and where to look."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.isolate.cell import Cell, Factor, Value, phrase
from engine.isolate.experiment import Experiment, LocalSubject


@dataclass(frozen=True)
class Condition:
    """``holds`` of a cell, or not. ``factors``: that decide it. ``path``: what of the code depends on it."""

    text: str
    factors: tuple[Factor, ...]
    path: str
    holds: Callable[[Cell], bool]
    # What a condition says about the engine is worth more than a value that happens to be in the matrix.
    rank: int = 0
    words: int = 1  # conditions in it

    def __and__(self, other: Condition) -> Condition:
        factors = tuple(dict.fromkeys((*self.factors, *other.factors)))
        return Condition(
            f"{self.text} and {other.text}",
            factors,
            "; ".join(dict.fromkeys((self.path, other.path))),
            lambda cell: self.holds(cell) and other.holds(cell),
            self.rank + other.rank,
            self.words + other.words,
        )


ALWAYS = Condition(
    "in every cell",
    (),
    "what every step does: verify, acceptance, commit",
    lambda cell: True,
    words=0,
)
WIDTH = "the width of a step: num_draft_tokens, mask strides, row offsets"
BRANCH = "what a tree has and a chain has not: mask columns, positions by depth, links, KV moved in path order"
PADDING = "padding rows of a tree that is smaller than its step: their mask, positions and slots"
GRAPH = "what a replay reads: persistent buffers, what is refreshed, what was captured"
PADDED = "padded requests of a captured batch"
BATCH = "what is laid out one request behind the other: offsets, strides, whose tree"
SAMPLED = "sampled acceptance"
PROMPT = "that text: its length, its tokens, where it stops"


def conditions(experiment: Experiment) -> list[Condition]:
    """All that the cells of an experiment can tell anything about; the more general first."""
    matrix, subject = experiment.matrix, experiment.subject
    found = [*_structural(subject.block_size), *_captured(experiment)]
    found += _values(Factor.BUDGET, matrix.budgets, WIDTH)
    found += _values(Factor.TOPK, matrix.topks, BRANCH)
    found += _values(Factor.BATCH, matrix.batches, BATCH)
    found += _values(Factor.PROMPT, matrix.used_prompts, PROMPT)
    found += _values(Factor.TEMPERATURE, matrix.temperatures, SAMPLED)
    found += _values(Factor.SEED, matrix.seeds, SAMPLED)
    return found


def _structural(block_size: int | None) -> Iterable[Condition]:
    """What a value means to a step, whatever the value is."""
    if block_size is not None:
        size = block_size
        yield Condition(
            f"q_len ≠ block size {size}", (Factor.BUDGET,), WIDTH, lambda c: c.q_len != size
        )
        yield Condition(
            f"q_len > block size {size}", (Factor.BUDGET,), WIDTH, lambda c: c.q_len > size, 1
        )
        yield Condition(
            f"a chain of {size - 1} in more rows",
            (Factor.BUDGET, Factor.TOPK),
            PADDING,
            lambda c: c.topk == 1 and c.q_len > size,
        )
    yield Condition("trees that branch", (Factor.TOPK,), BRANCH, lambda c: c.topk != 1)
    yield Condition("chains", (Factor.TOPK,), BRANCH, lambda c: c.topk == 1)
    yield Condition("graphs on", (Factor.GRAPHS,), GRAPH, lambda c: c.graphs)
    yield Condition("graphs off", (Factor.GRAPHS,), GRAPH, lambda c: not c.graphs)
    yield Condition("several requests", (Factor.BATCH,), BATCH, lambda c: c.batch > 1)
    yield Condition("one request", (Factor.BATCH,), BATCH, lambda c: c.batch == 1)
    yield Condition(
        "temperature above 0", (Factor.TEMPERATURE,), SAMPLED, lambda c: c.temperature > 0
    )
    yield Condition("temperature 0", (Factor.TEMPERATURE,), SAMPLED, lambda c: c.temperature == 0)


def _captured(experiment: Experiment) -> Iterable[Condition]:
    subject = experiment.subject
    if not isinstance(subject, LocalSubject):
        return
    size = subject.captured_bs

    def padded(cell: Cell) -> bool:
        captured = size or 1 << (cell.batch - 1).bit_length()
        return cell.graphs and captured > cell.batch

    yield Condition("padded replays", (Factor.GRAPHS, Factor.BATCH), PADDED, padded)


def _values(
    factor: Factor, values: tuple[int | float | None, ...], path: str
) -> Iterable[Condition]:
    """One value alone, or all from one value on."""
    for value in values:
        yield Condition(phrase(factor, value), (factor,), path, _is(factor, value), 2)
    for value in sorted(v for v in values if v is not None)[1:-1]:
        words = phrase(factor, value)
        yield Condition(f"{words} or more", (factor,), path, _reaches(factor, value, 1), 2)
        yield Condition(f"{words} or less", (factor,), path, _reaches(factor, value, -1), 2)


def _is(factor: Factor, value: Value) -> Callable[[Cell], bool]:
    return lambda cell: cell.value(factor) == value


def _reaches(factor: Factor, value: float, sign: int) -> Callable[[Cell], bool]:
    """``value`` or more (1), ``value`` or less (-1); no cap is more than any."""

    def holds(cell: Cell) -> bool:
        found = cell.value(factor)
        return sign * ((float("inf") if found is None else found) - value) >= 0

    return holds
