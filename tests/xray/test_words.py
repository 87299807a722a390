"""The sentence of an X-ray counts as one would say it.

Run: pytest tests/xray/test_words.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.layout import MaskKind, MaskView
from engine.xray.verdict import Fault, Judged, Pair
from engine.xray.words import sentence, spans


def judged(**facts: Any) -> Judged:
    """A request of 3 rows behind 1 prefix column whose kernel hides the cell of row 1, column 2."""
    seen = np.ones((3, 4), np.int8)
    hidden = seen.copy()
    hidden[1, 2] = 0
    masks = {
        kind: MaskView(
            kind, 1, hidden if kind is MaskKind.MEASURED else seen, np.full((3, 4), -1, np.int64)
        )
        for kind in MaskKind
    }
    pair = Pair(MaskKind.ADDRESSED, MaskKind.MEASURED, ((1, 2),), 0)
    nothing: dict[str, Any] = dict.fromkeys(("unwritten", "empty", "contested", "outside"), ())
    known = {"foreign": (), "foreign_count": 0, "repeated": ()} | nothing | facts
    return Judged("r0", masks, 3, (pair,), Fault.KERNEL, **known)


START = (
    "kernel at fault: it does not attend to what its metadata and buffer say; 1 cell in row 1, first row 1, "
    "column 2 (node 1): hidden, expected visible"
)


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        ({}, ""),
        ({"unwritten": (2,)}, "; row 2 is never written"),
        ({"unwritten": (1, 2)}, "; rows 1-2 are never written"),
        ({"empty": (0,)}, "; row 0 sees nothing"),
        ({"empty": (0, 2)}, "; rows 0, 2 see nothing"),
        ({"outside": (0,)}, "; row 0 reads cells outside the buffer"),
        ({"outside": (0, 1)}, "; rows 0-1 read cells outside the buffer"),
        ({"foreign_count": 1}, "; 1 foreign key is attended to"),
        ({"foreign_count": 12}, "; 12 foreign keys are attended to"),
    ],
)
def test_numbers(facts: dict[str, Any], end: str) -> None:
    assert sentence(judged(**facts)) == START + end


def test_spans() -> None:
    assert spans((1, 3, 4, 5, 9)) == "1, 3-5, 9"
    assert spans(tuple(range(0, 40, 2))).endswith(" …")
