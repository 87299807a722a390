"""What a mask cell is drawn as: one small integer a cell, and the words for each.

Codes are uint8 because Plotly takes such arrays as they are; a list or a bool array costs fifty
times as much.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from engine.layout import UNREAD, VISIBLE, Cells
from workbench.theme import Palette

Codes = NDArray[np.uint8]


class Code(IntEnum):
    """Looks of a cell, from harmless to wrong: a reduction by maximum keeps what is wrong."""

    HIDDEN = 0
    VISIBLE = 1
    UNREAD = 2  # no program reads or writes it, and nothing is asked of it
    UNCOVERED = 3  # should be visible, but no program covers the row
    EXTRA = 4  # visible, should be hidden
    MISSING = 5  # hidden, should be visible


WORDS = {
    Code.HIDDEN: "hidden",
    Code.VISIBLE: "visible",
    Code.UNREAD: "never read",
    Code.UNCOVERED: "missing: no program covers this row",
    Code.EXTRA: "extra: attends but must not",
    Code.MISSING: "missing: must attend but does not",
}
GLYPHS = {Code.EXTRA: "+", Code.MISSING: "−", Code.UNCOVERED: "·"}


def colours(palette: Palette, *, faint: bool = False) -> list[str]:
    """Colour of each code; ``faint``: agreeing cells step back behind the differing ones."""
    visible = palette.folded if faint else palette.visible
    return [
        palette.hidden,
        visible,
        palette.grid,
        palette.unread,
        palette.extra,
        palette.missing,
    ]


def plain(cells: Cells) -> Codes:
    """A mask by itself."""
    return np.where(cells == UNREAD, Code.UNREAD, cells).astype(np.uint8)


def difference(right: Cells, left: Cells, num_nodes: int) -> Codes:
    """``left`` is what should be, ``right`` what is. Rows from ``num_nodes`` on are padding:
    nothing is asked of them.
    """
    codes = np.where(left == VISIBLE, Code.VISIBLE, Code.HIDDEN).astype(np.uint8)
    codes[(right == VISIBLE) & (left != VISIBLE)] = Code.EXTRA
    codes[(right != VISIBLE) & (left == VISIBLE)] = Code.MISSING
    codes[(right == UNREAD) & (left == VISIBLE)] = Code.UNCOVERED
    padding = codes[num_nodes:]
    padding[padding >= Code.UNCOVERED] = Code.UNREAD
    return codes


def is_wrong(codes: Codes) -> NDArray[np.bool_]:
    """Cells that differ."""
    return codes >= Code.UNCOVERED
