"""An experiment in words and letters, for a terminal; the page draws the same facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.isolate.cell import Cell, Factor, phrase
from engine.isolate.experiment import Experiment
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome, outcomes
from engine.isolate.verdict import Pair, Verdict
from workbench.outcome import CELL_MARKS, NOT_MEASURED

LETTER = {outcome: look.glyph for outcome, look in CELL_MARKS.items()}
EMPTY = NOT_MEASURED.glyph
DOWN = (Factor.BUDGET, Factor.TOPK)
ACROSS = (Factor.PROMPT, Factor.TEMPERATURE, Factor.SEED, Factor.BATCH, Factor.GRAPHS)
NAMED = 4  # cells of one error
PAIRS = 3  # that are shown of a proof


@dataclass(frozen=True)
class Grid:
    """Cells by row and column. Labels name only what varies."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]  # [row][column]


def grid_of(cells: Sequence[Cell]) -> Grid:
    """Budget and top-k downwards, everything else across."""
    varied = [f for f in Factor if len({cell.value(f) for cell in cells}) > 1]
    table: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        row = _label(cell, [f for f in DOWN if f in varied] or [Factor.BUDGET])
        column = _label(cell, [f for f in ACROSS if f in varied] or [Factor.GRAPHS])
        table.setdefault(row, {})[column] = cell
    columns = tuple(dict.fromkeys(label for row in table.values() for label in row))
    return Grid(
        tuple(table), columns, tuple(tuple(row[c] for c in columns) for row in table.values())
    )


def _label(cell: Cell, factors: Sequence[Factor]) -> str:
    return ", ".join(phrase(factor, cell.value(factor)) for factor in factors)


def lines_of(
    experiment: Experiment, results: Mapping[Cell, Measured], verdict: Verdict
) -> list[str]:
    """The verdict, what proves it, the matrix, errors, and what would tell more."""
    found = outcomes(results.values(), speed_counts=experiment.speed_counts)
    lines = [verdict.sentence, "", *_matrix(list(experiment.matrix), found)]
    if verdict.proof:
        lines += [
            "",
            "what proves it:",
            *(f"  {_pair(pair, found)}" for pair in verdict.proof[:PAIRS]),
        ]
        if (more := len(verdict.proof) - PAIRS) > 0:
            lines.append(f"  and {more} more")
    if verdict.missing:
        lines += [
            "",
            "not told apart yet; these cells would:",
            *(f"  {cell}" for cell in verdict.missing),
        ]
    return [*lines, *_errors(results)]


def _errors(results: Mapping[Cell, Measured]) -> list[str]:
    """Each error once, with the cells that have it."""
    cells: dict[str, list[str]] = {}
    for cell, result in results.items():
        if result.error:
            cells.setdefault(result.error, []).append(cell.key)
    if not cells:
        return []
    lines = ["", "cells that failed (--retry-failed measures them again):"]
    for error, keys in cells.items():
        more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
        lines.append(f"  {', '.join(keys[:NAMED])}{more}: {error}")
    return lines


def _matrix(cells: Sequence[Cell], found: Mapping[Cell, Outcome]) -> list[str]:
    grid = grid_of(cells)
    left = max(map(len, grid.rows))
    lines = [
        f"  {label:<{left}}  {'  '.join(_letters(row, grid.columns, found))}".rstrip()
        for label, row in zip(grid.rows, grid.cells, strict=True)
    ]
    used = {LETTER[outcome]: str(outcome) for outcome in found.values()}
    unknown = {EMPTY: "not measured"} if len(found) < len(cells) else {}
    legend = "  ".join(f"{letter} {word}" for letter, word in {**used, **unknown}.items())
    return [f"  {'':<{left}}  {'  '.join(grid.columns)}", *lines, f"  {legend}"]


def _letters(
    row: Sequence[Cell], columns: Sequence[str], found: Mapping[Cell, Outcome]
) -> list[str]:
    letters = (LETTER[found[cell]] if cell in found else EMPTY for cell in row)
    return [f"{letter:^{len(head)}}" for letter, head in zip(letters, columns, strict=True)]


def _pair(pair: Pair, found: Mapping[Cell, Outcome]) -> str:
    broken, other = pair.broken, pair.other
    same = ", ".join(
        f"prompt {pair.prompt}" if f is Factor.PROMPT else phrase(f, broken.value(f))
        for f in Factor
        if f is not pair.factor and (f not in QUIET or broken.value(f))
    )
    if broken.value(pair.factor) == other.value(pair.factor):  # the cells are both wrong, it may be
        return f"wrong at one place of a batch of {broken.batch}, right at another ({same})"
    # Of a cell with a wrong text this one is right.
    right = "right" if found[other] is Outcome.WRONG else found[other]
    return (
        f"{phrase(pair.factor, broken.value(pair.factor))} {found[broken]}, "
        f"{phrase(pair.factor, other.value(pair.factor))} {right} ({same})"
    )


QUIET = (Factor.TEMPERATURE, Factor.SEED)
