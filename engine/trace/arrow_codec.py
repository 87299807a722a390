"""VerifyStep to an Arrow record batch of one row; schema and conversion follow from each field's Kind.

Storage: groups are structs (null: nothing is known), lists are lists, ``custom_mask`` is binary,
``top2`` is a flat float64 list of ``[id, logit, id, logit]`` a row. Not covered: the way back
(``engine.trace.arrow_decode``), the framing around a batch (``engine.trace.ipc``), ranges and sizes
(``engine.trace.validate``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from engine.step import UNKNOWN_TOKEN, Kind, VerifyStep
from engine.trace.fields import Declared, is_empty, stored


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


def arrow_type(field: Declared) -> pa.DataType:
    """How a field is stored."""
    if field.kind is Kind.GROUP:
        return _struct(field.item)
    if field.kind is Kind.GROUPS:
        return _list_of(_struct(field.item))
    return ARROW_TYPES[field.kind]


def _struct(record: type[Any]) -> pa.DataType:
    return pa.struct([pa.field(f.name, arrow_type(f)) for f in stored(record)])


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
    for field in stored(type(record)):
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
