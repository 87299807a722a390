"""Conditions that a fault may hang on, each with the factors that decide it and where to look."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.isolate.cell import Factor, Value, phrase
from engine.isolate.experiment import Experiment, LocalSubject
from engine.isolate.seen import Seen


@dataclass(frozen=True)
class Condition:
    """``holds`` of a text that was seen, or not. ``factors`` decide it; ``path``: the code that depends on it."""

    text: str
    factors: tuple[Factor, ...]
    path: str
    holds: Callable[[Seen], bool]
    # What a condition says about the engine is worth more than a value that happens to be in the matrix.
    rank: int = 0
    words: int = 1  # conditions in it

    def __and__(self, other: Condition) -> Condition:
        factors = tuple(dict.fromkeys((*self.factors, *other.factors)))
        return Condition(
            f"{self.text} and {other.text}",
            factors,
            "; ".join(dict.fromkeys((self.path, other.path))),
            lambda seen: self.holds(seen) and other.holds(seen),
            self.rank + other.rank,
            self.words + other.words,
        )


ALWAYS = Condition(
    "in every cell",
    (),
    "what every step does: verify, acceptance, commit",
    lambda seen: True,
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
    """All that the texts of an experiment can tell anything about; the more general first."""
    matrix, subject = experiment.matrix, experiment.subject
    found = [*_structural(subject.block_size), *_captured(experiment)]
    found += _values(Factor.BUDGET, matrix.budgets, WIDTH)
    found += _values(Factor.TOPK, matrix.topks, BRANCH)
    found += _values(Factor.BATCH, matrix.batches, BATCH)
    found += _values(Factor.PROMPT, tuple(range(len(matrix.prompts))), PROMPT)
    found += _values(Factor.TEMPERATURE, matrix.temperatures, SAMPLED)
    found += _values(Factor.SEED, matrix.seeds, SAMPLED)
    return found


def _structural(block_size: int | None) -> Iterable[Condition]:
    """What a value means to a step, whatever the value is."""
    if block_size is not None:
        size = block_size
        yield Condition(
            f"q_len ≠ block size {size}", (Factor.BUDGET,), WIDTH, lambda s: s.cell.q_len != size
        )
        yield Condition(
            f"q_len > block size {size}", (Factor.BUDGET,), WIDTH, lambda s: s.cell.q_len > size, 1
        )
        yield Condition(
            f"a chain of {size - 1} in more rows",
            (Factor.BUDGET, Factor.TOPK),
            PADDING,
            lambda s: s.cell.topk == 1 and s.cell.q_len > size,
        )
    yield Condition("trees that branch", (Factor.TOPK,), BRANCH, lambda s: s.cell.topk != 1)
    yield Condition("chains", (Factor.TOPK,), BRANCH, lambda s: s.cell.topk == 1)
    yield Condition("graphs on", (Factor.GRAPHS,), GRAPH, lambda s: s.cell.graphs)
    yield Condition("graphs off", (Factor.GRAPHS,), GRAPH, lambda s: not s.cell.graphs)
    yield Condition("several requests", (Factor.BATCH,), BATCH, lambda s: s.cell.batch > 1)
    yield Condition("behind another request", (Factor.BATCH,), BATCH, lambda s: s.place > 0)
    yield Condition("one request", (Factor.BATCH,), BATCH, lambda s: s.cell.batch == 1)
    yield Condition(
        "temperature above 0", (Factor.TEMPERATURE,), SAMPLED, lambda s: s.cell.temperature > 0
    )
    yield Condition(
        "temperature 0", (Factor.TEMPERATURE,), SAMPLED, lambda s: s.cell.temperature == 0
    )


def _captured(experiment: Experiment) -> Iterable[Condition]:
    subject = experiment.subject
    if not isinstance(subject, LocalSubject):
        return
    size = subject.captured_bs

    def padded(seen: Seen) -> bool:
        captured = size or 1 << (seen.cell.batch - 1).bit_length()
        return seen.cell.graphs and captured > seen.cell.batch

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


def _is(factor: Factor, value: Value) -> Callable[[Seen], bool]:
    return lambda seen: seen.alone.value(factor) == value


def _reaches(factor: Factor, value: float, sign: int) -> Callable[[Seen], bool]:
    """``value`` or more (1), ``value`` or less (-1); no cap is more than any."""

    def holds(seen: Seen) -> bool:
        found = seen.alone.value(factor)
        return sign * ((float("inf") if found is None else found) - value) >= 0

    return holds
