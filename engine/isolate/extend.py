"""More cells for an experiment that was measured already: its matrix grows, and everything that is known stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from engine.isolate.cell import Cell, Factor
from engine.isolate.codec import EXPERIMENT
from engine.isolate.matrix import FIELDS, Matrix
from engine.isolate.store import WHAT, Store
from engine.trace.archive import write_atomically


def extended(matrix: Matrix, cells: Iterable[Cell]) -> Matrix:
    """The smallest matrix that holds these cells too. Raises ``ValueError`` where it would be too large."""
    more = list(cells)
    values: dict[str, Any] = {
        name: tuple(dict.fromkeys((*getattr(matrix, name), *(c.value(factor) for c in more))))
        for name, factor in zip(FIELDS, Factor, strict=True)
    }
    return replace(matrix, **values)


def extend(store: Store, cells: Iterable[Cell]) -> Store:
    """The same folder with these cells in its matrix; nothing is measured yet."""
    matrix = extended(store.experiment.matrix, cells)
    if matrix == store.experiment.matrix:
        return store
    experiment = replace(store.experiment, matrix=matrix)
    text = f"{EXPERIMENT.dumps(experiment)}\n"
    write_atomically(store.folder / WHAT, text.encode())
    return Store.open(store.folder)
