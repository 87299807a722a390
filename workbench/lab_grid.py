"""The cells of an experiment as a grid: what the trees are down the rows, how they are run across the columns.

A factor with one value is not an axis; it is said once, beside the grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from engine.isolate.cell import Cell, Factor, Value, phrase

DOWN = (Factor.BUDGET, Factor.TOPK)
MOST_COLUMNS = 24  # beyond, the innermost factors go down too


@dataclass(frozen=True)
class Span:
    """A value that neighbouring rows or columns share: ``start … stop-1``."""

    start: int
    stop: int
    text: str
    short: str  # the value alone, for where the axis is named


@dataclass(frozen=True)
class LabGrid:
    """``cells``: by row and column."""

    down: tuple[Factor, ...]
    across: tuple[Factor, ...]
    rows: tuple[tuple[Value, ...], ...]
    columns: tuple[tuple[Value, ...], ...]
    cells: tuple[tuple[Cell, ...], ...]
    same: tuple[str, ...]  # what all cells have in common

    def at(self, number: int) -> Cell | None:
        """The cell of a number that counts row by row."""
        return self.flat[number] if 0 <= number < len(self.flat) else None

    @property
    def flat(self) -> tuple[Cell, ...]:
        """All cells, row by row."""
        return tuple(cell for row in self.cells for cell in row)


def grid_of(matrix: Iterable[Cell]) -> LabGrid:
    """At least one cell, and every combination of their values."""
    known = list(matrix)
    values = {f: _ordered(cell.value(f) for cell in known) for f in Factor}
    varied = [f for f in Factor if len(values[f]) > 1]
    down, across = _axes(varied, {f: len(values[f]) for f in Factor})
    rows = tuple(product(*(values[f] for f in down)))
    columns = tuple(product(*(values[f] for f in across)))
    places = {(_setting(c, down), _setting(c, across)): c for c in known}
    grid = tuple(tuple(places[row, column] for column in columns) for row in rows)
    same = tuple(phrase(f, values[f][0]) for f in Factor if f not in (*down, *across))
    return LabGrid(down, across, rows, columns, grid, same)


def spans(settings: Sequence[tuple[Value, ...]], factors: Sequence[Factor]) -> list[list[Span]]:
    """Labels of an axis, the outermost factor first; equal neighbours share one."""
    return [_spans([s[: depth + 1] for s in settings], f) for depth, f in enumerate(factors)]


def _spans(settings: Sequence[tuple[Value, ...]], factor: Factor) -> list[Span]:
    found, start = [], 0
    for setting, run in groupby(settings):
        stop = start + len(list(run))
        found.append(Span(start, stop, *_words(factor, setting[-1])))
        start = stop
    return found


def _words(factor: Factor, value: Value) -> tuple[str, str]:
    """``top-k 4`` and ``4``."""
    short = (
        "all"
        if value is None
        else "on"
        if value is True
        else "off"
        if value is False
        else f"{value:g}"
    )
    return phrase(factor, value), short


def _axes(
    varied: Sequence[Factor], counts: dict[Factor, int]
) -> tuple[tuple[Factor, ...], tuple[Factor, ...]]:
    down = [f for f in varied if f in DOWN] or [Factor.BUDGET]
    across = [f for f in varied if f not in DOWN] or [Factor.GRAPHS]
    while len(across) > 1 and _product(across, counts) > MOST_COLUMNS:
        down.append(across.pop())
    return tuple(down), tuple(across)


def _product(factors: Iterable[Factor], counts: dict[Factor, int]) -> int:
    total = 1
    for factor in factors:
        total *= counts[factor]
    return total


def _setting(cell: Cell, factors: tuple[Factor, ...]) -> tuple[Value, ...]:
    return tuple(cell.value(f) for f in factors)


def _ordered(values: Iterable[Value]) -> list[Value]:
    """From small to large; no cap is more than any."""
    return sorted(set(values), key=lambda v: float("inf") if v is None else float(v))
