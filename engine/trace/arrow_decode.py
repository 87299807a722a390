"""An Arrow record batch of one row back to a VerifyStep, from its buffers as they lie in the batch.

A field that is null costs nothing, and no Arrow object is made for a value. Covered: every batch with as many arrays
and buffers as its plan, damaged or not. Not covered: the way there (``engine.trace.arrow_codec``), ranges and sizes of
values (``engine.trace.validate``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.step import UNKNOWN_TOKEN, Kind, VerifyStep
from engine.trace import limits
from engine.trace.arrow_batch import Batch
from engine.trace.arrow_codec import schema
from engine.trace.arrow_plan import KEY, Column, Load, Plan, plan_of
from engine.trace.errors import FieldProblem
from engine.trace.validate import LENGTHS

NO_NULLS = "a value in every place of a list"
ANY = limits.MAX_OFFSET
KEY_BUFFERS = 2 * len(KEY)
NONE: Mapping[str, Any] = {}


def plan_of_file(found: pa.Schema) -> Plan | None:
    """How steps of a file with this schema are read; None where it is none of ours."""
    return _our_plan() if found.equals(schema()) else plan_of(found, LOAD)


@cache
def _our_plan() -> Plan | None:
    return plan_of(schema(), LOAD)


def batch_to_step(batch: Batch, plan: Plan, known: Mapping[str, Any] = NONE) -> VerifyStep:
    """The step of a batch of one row. Arrays may be read-only views of the batch.

    ``known``: fields that are not to be read, and their values.

    Raises ``FieldProblem``, or for damage ``ValueError``, ``OSError``, ``IndexError`` or ``struct.error``; ranges and
    sizes are not looked at.
    """
    columns = [c for c in plan.columns if c.name not in known] if known else plan.columns
    step: VerifyStep = _record(VerifyStep, columns, batch, 0, known)
    return step


def batch_to_key(batch: Batch, plan: Plan) -> tuple[int, int]:
    """Number and rank of the step from the first ``KEY_BUFFERS`` buffers; raises as :func:`batch_to_step`."""
    number, rank = (
        column.load(column, batch, 0) if batch.valid(column.buffer, 0) else 0
        for column in plan.columns[: len(KEY)]
    )
    return number, rank


def _record(
    record: type[Any],
    columns: Sequence[Column],
    batch: Batch,
    row: int,
    known: Mapping[str, Any] = NONE,
) -> Any:
    """One record; a null is an absent field."""
    values, name, buffers = dict(known), "", batch.buffers
    try:
        for column in columns:
            name = column.name
            if not buffers[column.buffer] or batch.valid(column.buffer, row):
                values[name] = column.load(column, batch, row)
            elif column.required:
                raise FieldProblem(column.kind.value, "null")
    except FieldProblem as problem:
        raise problem.inside(name) from None
    return record(**values)


def _group(column: Column, batch: Batch, row: int) -> Any:
    return _record(column.item, column.inside, batch, row)


def _span(column: Column, batch: Batch, row: int, most: int) -> tuple[int, int]:
    """Start and end of a list of at most so many entries."""
    start, end = batch.span(column.buffer + 1, row, batch.lengths[column.node + 1])
    if end - start > most:
        raise FieldProblem(f"at most {most} entries", str(end - start))
    return start, end


def _groups(column: Column, batch: Batch, row: int) -> tuple[Any, ...]:
    batch.refuse_nulls(column.node + 1, column.buffer + 2, "an object in every place of a list")
    items = range(*_span(column, batch, row, LENGTHS.get(column.name, limits.MAX_ROWS)))
    return tuple(_record(column.item, column.inside, batch, item) for item in items)


def _number(form: str) -> Load:
    """Reader of a number of 8 bytes; ``form`` as in ``struct``."""
    unpack = Struct(form).unpack_from

    def load(column: Column, batch: Batch, row: int) -> Any:
        return unpack(batch.buffers[column.buffer + 1], 8 * row)[0]

    return load


def _bool(column: Column, batch: Batch, row: int) -> bool:
    return bool(batch.buffers[column.buffer + 1][row >> 3] >> (row & 7) & 1)


def _string(column: Column, batch: Batch, row: int) -> str:
    return batch.text(column.buffer + 1, row)


def _bytes(column: Column, batch: Batch, row: int) -> NDArray[np.uint8]:
    data = batch.bytes(column.buffer + 1, row)
    return np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def _list(kind: Any) -> Load:
    """Reader of a list of numbers of 8 bytes."""
    empty = np.empty(0, kind)

    def load(column: Column, batch: Batch, row: int) -> NDArray[Any]:
        buffer, buffers = column.buffer, batch.buffers
        if buffers[buffer + 2]:
            batch.refuse_nulls(column.node + 1, buffer + 2, NO_NULLS)
        start, end = batch.span(buffer + 1, row, batch.lengths[column.node + 1])
        if start == end:
            return empty
        return np.frombuffer(buffers[buffer + 3], kind, end - start, 8 * start)

    return load


def _bools(column: Column, batch: Batch, row: int) -> NDArray[np.bool_]:
    batch.refuse_nulls(column.node + 1, column.buffer + 2, NO_NULLS)
    start, end = _span(column, batch, row, ANY)
    packed = batch.values(column.buffer + 3, np.uint8, 0, (end + 7) // 8)
    return np.unpackbits(packed, count=end, bitorder="little")[start:].view(np.bool_)


def _optional_ints(column: Column, batch: Batch, row: int) -> NDArray[np.int64]:
    start, end = _span(column, batch, row, ANY)
    numbers = batch.values(column.buffer + 3, np.int64, start, end)
    nulls = batch.nulls(column.node + 1, column.buffer + 2)
    return numbers if nulls is None else np.where(nulls[start:end], UNKNOWN_TOKEN, numbers)


def _ragged(column: Column, batch: Batch, row: int) -> tuple[NDArray[np.int64], ...]:
    lists, buffers = column.buffer + 2, batch.buffers
    if buffers[lists] or buffers[lists + 2]:
        batch.refuse_nulls(column.node + 1, lists, NO_NULLS)
        batch.refuse_nulls(column.node + 2, lists + 2, NO_NULLS)
    first, last = _span(column, batch, row, limits.MAX_ROWS)
    if first == last:
        return ()
    ends = batch.values(lists + 1, np.int32, first, last + 1).tolist()
    start = ends[0]
    if start < 0 or ends[-1] > batch.lengths[column.node + 2] or ends != sorted(ends):
        raise ValueError("offsets out of order")
    numbers = batch.values(lists + 3, np.int64, start, ends[-1])
    return tuple([numbers[a - start : b - start] for a, b in pairwise(ends)])


def _top2(column: Column, batch: Batch, row: int) -> NDArray[np.float64]:
    flat = _floats(column, batch, row)
    if len(flat) % 4:
        raise FieldProblem("four numbers a row", str(len(flat)))
    pairs: NDArray[np.float64] = flat.reshape(-1, 2, 2)
    return pairs


def _map(column: Column, batch: Batch, row: int) -> dict[int, str]:
    batch.refuse_nulls(column.node + 3, column.buffer + 5, "a string in every place of a map")
    start, end = _span(column, batch, row, limits.MAX_ROWS)
    keys = batch.values(column.buffer + 4, np.int64, start, end).tolist()
    texts = (batch.text(column.buffer + 6, entry) for entry in range(start, end))
    return dict(zip(keys, texts, strict=True))


_floats = _list(np.float64)
LOAD: dict[Kind, Load] = {
    Kind.INT: _number("<q"),
    Kind.FLOAT: _number("<d"),
    Kind.STR: _string,
    Kind.BOOL: _bool,
    Kind.INTS: _list(np.int64),
    Kind.OPTIONAL_INTS: _optional_ints,
    Kind.FLOATS: _floats,
    Kind.BYTES: _bytes,
    Kind.BOOLS: _bools,
    Kind.RAGGED_INTS: _ragged,
    Kind.TOP2: _top2,
    Kind.STR_MAP: _map,
    Kind.GROUP: _group,
    Kind.GROUPS: _groups,
}
