"""The two sides of a mask difference: any mask of any step, rank, request and recording.

A side is written as ``mask:step:rank:request`` or ``mask:step:rank:request@recording``, which is
what the URL holds. An ``@`` of the request is written ``%40``, a ``%`` then ``%25``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.layout import UNREAD, VISIBLE, MaskKind, MaskView
from workbench import traces
from workbench.figures.mask_codes import Codes, difference
from workbench.loaded import Loaded
from workbench.loading import load
from workbench.stepview import StepView, view_of

KINDS = (MaskKind.INTENDED, MaskKind.BUILT, MaskKind.ADDRESSED, MaskKind.MEASURED)
MOST_DIGITS = 15  # of a step or rank


@dataclass(frozen=True)
class Side:
    """One side by name."""

    kind: MaskKind
    step: int
    rank: int
    rid: str
    trace: str | None = None  # None: the selected recording

    def to_text(self) -> str:
        """As the URL holds it."""
        rid = self.rid.replace("%", "%25").replace("@", "%40")
        text = f"{self.kind}:{self.step}:{self.rank}:{rid}"
        return text if self.trace is None else f"{text}@{self.trace}"


def parse(text: str | None, default: Side) -> Side:
    """A side of the URL; ``default`` where there is none, or one that makes no sense."""
    return _read(text or "") or default


def is_readable(text: str | None) -> bool:
    """Whether a side of the URL makes sense; that it is there is another question."""
    return not text or _read(text) is not None


def _read(text: str) -> Side | None:
    body, _, trace = text.partition("@")
    parts = body.split(":", 3)
    kinds = {str(kind): kind for kind in KINDS}
    if len(parts) < 4 or parts[0] not in kinds or not all(map(_is_number, parts[1:3])):
        return None
    rid = parts[3].replace("%40", "@").replace("%25", "%")
    return Side(kinds[parts[0]], int(parts[1]), int(parts[2]), rid, trace or None)


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= MOST_DIGITS


def loaded_of(side: Side, selected: Loaded) -> Loaded:
    """The recording of a side. Raises as ``open_trace`` does."""
    if side.trace is None:
        return selected
    return load(traces.find(side.trace, traces.entries()).path)


def view_of_side(side: Side, loaded: Loaded) -> StepView | None:
    """The request of a side; None where the recording does not hold it."""
    if not loaded.has(side.step, side.rank):
        return None
    context = loaded.context(side.step, side.rank)
    rids = [request.rid for request in context.step.requests]
    if side.rid not in rids:
        return None
    found = loaded.findings_by_step.get((side.step, side.rank), ())
    return view_of(context, rids.index(side.rid), found)


@dataclass(frozen=True, eq=False)
class Compared:
    """Two masks over each other; ``left`` is what should be."""

    left: MaskView
    right: MaskView  # the right mask in the left's coordinates
    codes: Codes
    note: str = ""

    @property
    def cells(self) -> np.ndarray:
        """Differing cells, int64 [n, 2]."""
        return np.argwhere(self.codes >= 3)


def compare(left: MaskView, right: MaskView, num_nodes: int) -> Compared:
    """Masks of different size are aligned at the first tree column; what only one side has is never
    read.
    """
    note = ""
    if left.cells.shape != right.cells.shape:
        note = (
            f"left has {left.q_len} rows behind {left.prefix_len} prefix columns, right {right.q_len} behind "
            f"{right.prefix_len}: compared from the first tree column on"
        )
        left, right = _aligned(left, right)
    return Compared(left, right, difference(right.cells, left.cells, num_nodes), note)


def _aligned(left: MaskView, right: MaskView) -> tuple[MaskView, MaskView]:
    """Tree columns alone, with as many rows as the larger side."""
    size = max(left.q_len, right.q_len)
    return _tree_only(left, size), _tree_only(right, size)


def _tree_only(view: MaskView, size: int) -> MaskView:
    cells = np.full((size, size), UNREAD, np.int8)
    places = np.full((size, size), -1, np.int64)
    cells[: view.q_len, : view.q_len] = view.cells[:, view.prefix_len :]
    places[: view.q_len, : view.q_len] = view.bytes[:, view.prefix_len :]
    return MaskView(view.kind, 0, cells, places)


WORD = {VISIBLE: "visible", UNREAD: "never read"}


def cell_word(value: int) -> str:
    """A cell's value in words."""
    return WORD.get(value, "hidden")
