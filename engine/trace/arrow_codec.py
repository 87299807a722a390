"""VerifyStep to an Arrow record batch of one row and back; schema and conversion follow from each
field's Kind.

Storage: groups are structs (null: nothing is known), lists are lists, ``custom_mask`` is binary,
``top2`` is a flat float64 list of ``[id, logit, id, logit]`` a row. Covered: types and the
relations inside Arrow's own arrays. Not covered: the framing around a batch (``engine.trace.ipc``),
ranges and sizes (``engine.trace.validate``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from engine.step import UNKNOWN_TOKEN, Kind, VerifyStep
from engine.trace.errors import FieldProblem
from engine.trace.fields import Declared, declared, is_empty, once_a_type


def _list_of(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", item, nullable=False))


ARROW_TYPES: dict[Kind, pa.DataType] = {
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STR: pa.string(),
    Kind.BOOL: pa.bool_(),
    Kind.INTS: _list_of(pa.int64()),
    Kind.OPTIONAL_INTS: pa.list_(pa.int64()),
    Kind.FLOATS: _list_of(pa.float64()),
    Kind.BYTES: pa.binary(),
    Kind.BOOLS: _list_of(pa.bool_()),
    Kind.RAGGED_INTS: _list_of(_list_of(pa.int64())),
    Kind.TOP2: _list_of(pa.float64()),
    Kind.STR_MAP: pa.map_(pa.int64(), pa.field("value", pa.string(), nullable=False)),
}


def _type(field: Declared) -> pa.DataType:
    if field.kind is Kind.GROUP:
        return _struct(field.item)
    if field.kind is Kind.GROUPS:
        return _list_of(_struct(field.item))
    return ARROW_TYPES[field.kind]


def _struct(record: type[Any]) -> pa.DataType:
    return pa.struct([pa.field(f.name, _type(f)) for f in _stored(record)])


@once_a_type
def _stored(record: type[Any]) -> tuple[Declared, ...]:
    """Fields in the order of storage: a step's numbers come first, so that they are found without
    decoding it.
    """
    if record is not VerifyStep:
        return declared(record)
    return tuple(sorted(declared(record), key=lambda field: field.kind is not Kind.INT))


@cache
def schema() -> pa.Schema:
    """The schema of a trace without its header; columns 0 and 1 are step and rank."""
    return pa.schema(list(_struct(VerifyStep)))


def step_to_batch(step: VerifyStep) -> pa.RecordBatch:
    """One step as a batch of one row. The step must be valid (``engine.trace.validate``)."""
    row = pa.array([_plain(step)], type=pa.struct(list(schema())))
    return pa.RecordBatch.from_arrays(row.flatten(), schema=schema())


def _plain(record: Any) -> dict[str, Any]:
    values = {}
    for field in _stored(type(record)):
        value = getattr(record, field.name)
        if value is not None:
            values[field.name] = _store(field, value)
    return values


def _store(field: Declared, value: Any) -> Any:
    if field.kind is Kind.GROUP:
        return None if not field.required and is_empty(value) else _plain(value)
    if field.kind is Kind.GROUPS:
        return [_plain(item) for item in value]
    store = STORE.get(field.kind)
    return value if store is None else store(value)


def _optional_to_plain(values: Any) -> list[int | None]:
    return [None if value == UNKNOWN_TOKEN else value for value in values.tolist()]


STORE: dict[Kind, Callable[[Any], Any]] = {
    Kind.INTS: lambda array: np.ascontiguousarray(array, np.int64),
    Kind.OPTIONAL_INTS: _optional_to_plain,
    Kind.FLOATS: lambda array: np.ascontiguousarray(array, np.float64),
    Kind.BYTES: lambda array: np.ascontiguousarray(array, np.uint8).tobytes(),
    Kind.BOOLS: lambda array: np.ascontiguousarray(array, np.bool_),
    Kind.RAGGED_INTS: lambda arrays: [np.ascontiguousarray(array, np.int64) for array in arrays],
    Kind.TOP2: lambda rows: np.ascontiguousarray(rows, np.float64).reshape(-1),
    Kind.STR_MAP: lambda texts: list(texts.items()),
}


def batch_to_step(batch: pa.RecordBatch) -> VerifyStep:
    """The step of a batch of one row whose schema is :func:`schema` and which passed
    ``validate(full=True)``.

    Arrays may be read-only views of the batch. Raises ``FieldProblem``; ranges and sizes are not
    looked at.
    """
    if batch.num_rows != 1:
        raise FieldProblem("one step a record batch", f"{batch.num_rows} rows")
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    step: VerifyStep = _records(VerifyStep, columns, 1)[0]
    return step


def _records(record: type[Any], columns: dict[str, pa.Array], count: int) -> list[Any]:
    """Records from their columns; a null is an absent field."""
    known: dict[str, list[Any]] = {}
    for field in _stored(record):
        try:
            column = columns[field.name]
            if column.null_count < count:
                known[field.name] = _column(field, column)
            if field.required and column.null_count:
                raise FieldProblem(field.kind.value, "null")
        except FieldProblem as problem:
            raise problem.inside(field.name) from None
    rows = zip(*known.values(), strict=True) if known else iter([()] * count)
    return [
        record(**{k: v for k, v in zip(known, row, strict=True) if v is not None}) for row in rows
    ]


def _column(field: Declared, column: pa.Array) -> list[Any]:
    if field.kind is Kind.GROUP:
        return _masked(column, _struct_column(field.item, column))
    if field.kind is Kind.GROUPS:
        if column.values.null_count:
            raise FieldProblem("an object in every place of a list", "null")
        return _cut(column, _struct_column(field.item, column.values), tuple)
    return LOAD[field.kind](column)


def _struct_column(record: type[Any], column: pa.StructArray) -> list[Any]:
    """Records of a struct column. A null struct's fields are unspecified, so it is read as valid
    only if it is.
    """
    if column.null_count:
        column = column.filter(column.is_valid())
    columns = {f.name: column.field(i) for i, f in enumerate(_stored(record))}
    return _records(record, columns, len(column))


def _masked(column: pa.Array, present: list[Any]) -> list[Any]:
    if not column.null_count:
        return present
    items = iter(present)
    return [next(items) if valid else None for valid in _valid(column)]


def _numpy(values: pa.Array) -> Any:
    if values.null_count:
        raise FieldProblem("a value in every place of a list", "null")
    return values.to_numpy(zero_copy_only=False)


def _valid(column: pa.Array) -> list[bool]:
    return column.is_valid().to_pylist() if column.null_count else [True] * len(column)


def _cut(
    column: pa.Array, values: Any, wrap: Callable[[Any], Any] = lambda part: part
) -> list[Any]:
    """One slice of ``values`` (what the column's offsets point into) a row, None for a null row."""
    offsets = column.offsets.to_numpy().tolist()
    rows = zip(_valid(column), offsets, offsets[1:], strict=False)
    return [wrap(values[start:end]) if valid else None for valid, start, end in rows]


def _lists(column: pa.Array) -> list[Any]:
    return _cut(column, _numpy(column.values))


def _optional_lists(column: pa.Array) -> list[Any]:
    return _cut(column, _numpy(column.values.fill_null(UNKNOWN_TOKEN)))


def _ragged(column: pa.Array) -> list[Any]:
    inner = column.values
    if inner.null_count:
        raise FieldProblem("a value in every place of a list", "null")
    return _cut(column, _lists(inner), tuple)


def _binary(column: pa.Array) -> list[Any]:
    return [
        None if value is None else np.frombuffer(value, np.uint8) for value in column.to_pylist()
    ]


def _top2(column: pa.Array) -> list[Any]:
    flat = _lists(column)
    for values in flat:
        if values is not None and len(values) % 4:
            raise FieldProblem("four numbers a row", str(len(values)))
    return [None if values is None else values.reshape(-1, 2, 2) for values in flat]


def _maps(column: pa.Array) -> list[Any]:
    maps = [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    for texts in maps:
        if texts is not None and None in texts.values():
            raise FieldProblem("a string in every place of a map", "null")
    return maps


LOAD: dict[Kind, Callable[[pa.Array], list[Any]]] = {
    Kind.INT: lambda column: column.to_pylist(),
    Kind.FLOAT: lambda column: column.to_pylist(),
    Kind.STR: lambda column: column.to_pylist(),
    Kind.BOOL: lambda column: column.to_pylist(),
    Kind.INTS: _lists,
    Kind.OPTIONAL_INTS: _optional_lists,
    Kind.FLOATS: _lists,
    Kind.BYTES: _binary,
    Kind.BOOLS: _lists,
    Kind.RAGGED_INTS: _ragged,
    Kind.TOP2: _top2,
    Kind.STR_MAP: _maps,
}
