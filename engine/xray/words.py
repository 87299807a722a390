"""The sentence that follows from the four masks of a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.layout import UNREAD, VISIBLE, MaskKind
from engine.xray.verdict import Fault, Judged, Pair

WHOSE = {
    Fault.BUILDER: "builder at fault",
    Fault.METADATA: "metadata at fault",
    Fault.KERNEL: "kernel at fault",
}
MOST_SPANS = 8


def sentence(judged: Judged) -> str:
    """One sentence: whose fault, where, what; ``clean`` where all four masks agree."""
    pair = judged.first
    if pair is None:
        return "clean: intended, built, addressed and measured agree"
    return f"{WHOSE[judged.fault]}: {_because(judged, pair)}{_place(judged, pair)}{_rows(judged)}{_later(judged, pair)}"


def column_name(judged: Judged, column: int) -> str:
    """``column 5 (prefix 5)`` or ``column 44 (node 3)``."""
    prefix_len = judged.masks[MaskKind.INTENDED].prefix_len
    other = column - prefix_len
    name = f"prefix {column}" if other < 0 else f"node {other}"
    if other >= judged.num_nodes:
        name = f"padding row {other}"
    return f"column {column} ({name})"


def row_name(judged: Judged, row: int) -> str:
    """``row 3`` or ``row 14 (padding)``."""
    return f"row {row}" if row < judged.num_nodes else f"row {row} (padding)"


def spans(rows: Sequence[int]) -> str:
    """``1, 3-5``; the first :data:`MOST_SPANS`."""
    found = list(_spans(rows))
    return ", ".join(found[:MOST_SPANS]) + (" …" if len(found) > MOST_SPANS else "")


def _named(rows: Sequence[int]) -> str:
    return f"row {rows[0]}" if len(rows) == 1 else f"rows {spans(rows)}"


def _spans(rows: Sequence[int]) -> Iterator[str]:
    start = None
    for here, following in zip(rows, (*rows[1:], None), strict=True):
        start = here if start is None else start
        if following != here + 1:
            yield str(here) if start == here else f"{start}-{here}"
            start = None


def _because(judged: Judged, pair: Pair) -> str:
    if pair.right is MaskKind.BUILT:
        return "the buffer differs from the tree; "
    if pair.right is MaskKind.ADDRESSED:
        return "the buffer is right, but read with this metadata it is another mask; "
    return "it does not attend to what its metadata and buffer say; "


def _place(judged: Judged, pair: Pair) -> str:
    if not pair.cells:
        return f"only in {pair.foreign} pairs of a row and a key beyond the request's own columns"
    row, column = pair.cells[0]
    rows = sorted({row for row, _ in pair.cells})
    cells = "1 cell" if len(pair.cells) == 1 else f"{len(pair.cells)} cells"
    count = f"{cells} in {_named(rows)}"
    left, right = (judged.masks[kind].cells[row, column] for kind in (pair.left, pair.right))
    where = f"{row_name(judged, row)}, {column_name(judged, column)}"
    if int(left) == int(right):
        return f"{count}, first {where}: attended to another number of times"
    return f"{count}, first {where}: {_word(int(right))}, expected {_word(int(left))}"


def _word(cell: int) -> str:
    return (
        "visible" if cell == VISIBLE else "never written or outside" if cell == UNREAD else "hidden"
    )


def _rows(judged: Judged) -> str:
    parts = []
    for rows, one, several in (
        (judged.unwritten, "is never written", "are never written"),
        (judged.empty, "sees nothing", "see nothing"),
        (judged.outside, "reads cells outside the buffer", "read cells outside the buffer"),
    ):
        if rows:
            parts.append(f"{_named(rows)} {one if len(rows) == 1 else several}")
    count = judged.foreign_count
    if count:
        keys = "1 foreign key is" if count == 1 else f"{count} foreign keys are"
        parts.append(f"{keys} attended to")
    return "".join(f"; {part}" for part in parts)


def _later(judged: Judged, pair: Pair) -> str:
    """Pairs behind the first that disagree too."""
    others = [other.name for other in judged.pairs if other is not pair and not other.agrees]
    return f"; also {', '.join(others)}" if others else ""
