"""What each row attends to: the form in which a kernel's measurement and the address formula are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.layout import HIDDEN, UNREAD, VISIBLE, Cells, MaskKind, MaskView
from engine.xray.errors import XRayError
from engine.xray.keys import Keys

OUTSIDE = -1  # depends on a mask cell that the recorded buffer does not have
MOST = 200_000_000  # rows times keys


@dataclass(frozen=True, eq=False)
class Seen:
    """Per row of the batch and key: how often the row attends to it."""

    times: NDArray[np.int16]  # [rows, keys], OUTSIDE where that depends on foreign memory
    written: NDArray[np.bool_]  # [rows], whether any program writes the row
    contested: NDArray[np.bool_]  # [rows], whether several do

    @classmethod
    def nothing(cls, keys: Keys) -> Seen:
        """No row written. Raises :class:`XRayError` for a step too large to hold."""
        if keys.rows * keys.count > MOST:
            raise XRayError(
                f"step: expected at most {MOST} pairs of row and key, found {keys.rows * keys.count}"
            )
        times = np.zeros((keys.rows, keys.count), np.int16)
        return cls(times, np.zeros(keys.rows, np.bool_), np.zeros(keys.rows, np.bool_))

    def mask(self, kind: MaskKind, keys: Keys, request: int, prefix_len: int) -> MaskView:
        """The rows and columns of one request; rows that nobody writes are UNREAD."""
        columns = keys.columns[request]
        rows = columns[prefix_len:]
        times = self.times[np.ix_(rows, columns)]
        cells: Cells = np.where(times > 0, VISIBLE, HIDDEN).astype(np.int8)
        cells[times == OUTSIDE] = UNREAD
        cells[~self.written[rows]] = UNREAD
        nowhere = np.full(cells.shape, -1, np.int64)
        return MaskView(kind, prefix_len, cells, nowhere)

    def foreign(self, keys: Keys, request: int, prefix_len: int) -> NDArray[np.int64]:
        """What the request's rows attend to beyond its own columns, ``[n, 2]``: local row, key."""
        rows = keys.columns[request][prefix_len:]
        found = np.argwhere((self.times[rows] != 0) & ~keys.own(request))
        return found.astype(np.int64)

    def repeated(self, keys: Keys, request: int, prefix_len: int) -> NDArray[np.int64]:
        """Columns that a row attends to more than once, ``[n, 3]``: local row, column, times."""
        columns = keys.columns[request]
        times = self.times[np.ix_(columns[prefix_len:], columns)]
        places = np.argwhere(times > 1)
        return np.column_stack([places, times[times > 1]]).astype(np.int64)
