"""Where the arrays of each field lie in the record batches of a file, as its schema says.

Arrow stores arrays depth first, so a field's place follows from the kinds of the fields before it, once for all steps
of a file. Covered: our schema, and older ones that lack some of its optional fields. Not covered: reading the arrays
(``engine.trace.arrow_decode``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.step import Kind, VerifyStep
from engine.trace.arrow_batch import Batch
from engine.trace.arrow_codec import arrow_type
from engine.trace.fields import Declared, stored

KEY = ("step", "rank")  # of a file's columns the first two
# Arrays and buffers of each kind, depth first: of every array a validity bitmap, then offsets, then values.
LAYOUTS: dict[Kind, tuple[int, int]] = {
    Kind.INT: (1, 2),
    Kind.FLOAT: (1, 2),
    Kind.STR: (1, 3),
    Kind.BOOL: (1, 2),
    Kind.INTS: (2, 4),
    Kind.OPTIONAL_INTS: (2, 4),
    Kind.FLOATS: (2, 4),
    Kind.BYTES: (1, 3),
    Kind.BOOLS: (2, 4),
    Kind.RAGGED_INTS: (3, 6),
    Kind.TOP2: (2, 4),
    Kind.STR_MAP: (4, 8),
    Kind.GROUP: (1, 1),  # and its fields
    Kind.GROUPS: (2, 3),  # and the fields of its items
}
Load = Callable[["Column", Batch, int], Any]


@dataclass(frozen=True, eq=False)
class Column:
    """Where the arrays of one field lie, and how a row of them that is not null is read."""

    name: str
    kind: Kind
    required: bool
    load: Load
    node: int  # number of its first array
    buffer: int  # number of its first buffer: the validity bitmap
    item: type[Any]  # of groups: the record that a row holds, and its fields
    inside: tuple[Column, ...] = ()


@dataclass(frozen=True, eq=False)
class Plan:
    """All fields of a file's steps."""

    columns: tuple[Column, ...]
    nodes: int  # arrays of each batch
    buffers: int


def plan_of(found: pa.Schema, loads: Mapping[Kind, Load]) -> Plan | None:
    """The plan of a file with this schema; None for one that is not ours, nor ours without optional fields."""
    same_byte_order = found.equals(pa.schema(list(found)))
    plan = _plan(VerifyStep, list(found), loads, 0, 0) if same_byte_order else None
    ours = plan is not None and tuple(c.name for c in plan.columns[: len(KEY)]) == KEY
    return plan if ours else None


def _plan(
    record: type[Any], found: Sequence[pa.Field], loads: Mapping[Kind, Load], node: int, buffer: int
) -> Plan | None:
    """Fields of a record whose first array and buffer have these numbers, and the numbers after its last."""
    known = {field.name: field for field in stored(record)}
    names = [field.name for field in found]
    lacking = [field for name, field in known.items() if field.required and name not in names]
    if lacking or len(set(names)) < len(names):
        return None
    columns = []
    for each in found:
        field = known.get(each.name)
        if field is None or not each.nullable:
            return None
        nodes, buffers = LAYOUTS[field.kind]
        inside = Plan((), node + nodes, buffer + buffers)
        if field.kind in (Kind.GROUP, Kind.GROUPS):
            within = _fields_inside(field.kind, each.type)
            nested = (
                None
                if within is None
                else _plan(field.item, within, loads, inside.nodes, inside.buffers)
            )
            if nested is None:
                return None
            inside = nested
        elif not each.type.equals(arrow_type(field)):
            return None
        columns.append(_column(field, loads, node, buffer, inside.columns))
        node, buffer = inside.nodes, inside.buffers
    return Plan(tuple(columns), node, buffer)


def _column(
    field: Declared, loads: Mapping[Kind, Load], node: int, buffer: int, inside: tuple[Column, ...]
) -> Column:
    load = loads[field.kind]
    return Column(field.name, field.kind, field.required, load, node, buffer, field.item, inside)


def _fields_inside(kind: Kind, found: pa.DataType) -> list[pa.Field] | None:
    """Fields of a struct, or of a list's structs; None where it is neither."""
    if kind is Kind.GROUPS:
        if not pa.types.is_list(found) or found.value_field.nullable:
            return None
        found = found.value_type
    return [found.field(i) for i in range(found.num_fields)] if pa.types.is_struct(found) else None
