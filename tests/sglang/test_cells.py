"""How many mask cells are copied: as far as the rows sent or the width believed in reach, whichever is more.

Run: pytest tests/sglang/test_cells.py
"""

from __future__ import annotations

import pytest

from engine.sglang.raw import Layout, cells_of


@pytest.mark.parametrize(
    ("rows", "width", "cells"),
    [
        (3, None, 3 * (4 + 3) + 3 * (0 + 3)),
        (3, 3, 3 * (4 + 3) + 3 * (0 + 3)),
        (3, 5, 5 * (4 + 5) + 5 * (0 + 5)),  # a backend that believes in more reads further
        (5, 3, 5 * (4 + 5) + 5 * (0 + 5)),  # one that believes in less leaves what was built
    ],
)
def test_cells(rows: int, width: int | None, cells: int) -> None:
    laid = Layout("eager", 2, rows, width, None, None, None, None, None)
    assert cells_of(laid, [4, 0]) == cells
