"""Where two masks, or two arrays of a step, differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.layout import VISIBLE, MaskView
from engine.step import Int64

MAX_TABLE = 1 << 22  # values below are looked up in a table


@dataclass(frozen=True, eq=False)
class Difference:
    """Cells of one request's real rows in which two masks differ."""

    view: MaskView
    cells: Int64  # [n, 2] local row, column; row-major
    expected: Int64  # [n] 0 or 1
    found: Int64  # [n] 0, 1 or UNREAD

    @property
    def extra(self) -> bool:
        """Every differing cell is visible and should not be."""
        return bool((self.found == VISIBLE).all())


def assumed(view: MaskView) -> NDArray[np.bool_]:
    """Cells that are visible although no byte was read for them, bool [q_len, prefix_len + q_len]."""
    unread: NDArray[np.bool_] = np.logical_and(view.bytes < 0, view.cells == VISIBLE)
    return unread


def same(found: Int64, expected: Int64) -> bool:
    """Whether two arrays hold the same numbers."""
    if len(found) != len(expected):
        return False
    return found.tobytes() == expected.tobytes() or bool((found == expected).all())


def first_difference(found: Int64, expected: Int64) -> int | None:
    """Index of the first entry that differs; the shorter length where one array is a prefix of the other."""
    if same(found, expected):
        return None
    common = min(len(found), len(expected))
    differing = np.flatnonzero(found[:common] != expected[:common])
    if len(differing):
        return int(differing[0])
    return common if len(found) != len(expected) else None


def count_differences(found: Int64, expected: Int64) -> int:
    """Entries that differ, missing and surplus ones included."""
    common = min(len(found), len(expected))
    return int((found[:common] != expected[:common]).sum()) + abs(len(found) - len(expected))


def is_among(values: Int64, held: Sequence[Int64]) -> NDArray[np.bool_]:
    """Which of a few ``values`` are in one of several long arrays, bool [len(values)]."""
    if not len(values) or not held:
        return np.zeros(len(values), np.bool_)
    everything, numbers = np.concatenate(held), values.tolist()
    if min(numbers) >= 0 and max(numbers) < MAX_TABLE:
        wanted = np.zeros(max(numbers) + 2, np.bool_)  # the last stands for all larger numbers
        wanted[values] = True
        if not np.count_nonzero(wanted.take(everything, mode="clip")):
            return np.zeros(len(values), np.bool_)
    among: NDArray[np.bool_] = np.isin(values, everything)
    return among
