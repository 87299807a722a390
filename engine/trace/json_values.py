"""JSON values to what a record holds and back, one pair of functions a :class:`Kind`.

Covered: the type of every element. Not covered: ranges, lengths and sizes
(``engine.trace.validate``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.step import UNKNOWN_TOKEN, Kind
from engine.trace.errors import FieldProblem, describe
from engine.trace.limits import MAX_EXACT

INT64 = np.iinfo(np.int64)
Decoder = Callable[[Any], Any]


def _each(decode: Decoder, items: list[Any]) -> list[Any]:
    """Decode every element; a problem names the element's index."""
    values = []
    for index, item in enumerate(items):
        try:
            values.append(decode(item))
        except FieldProblem as problem:
            raise problem.inside(f"[{index}]") from None
    return values


def _list(value: Any, kind: Kind) -> list[Any]:
    if type(value) is not list:
        raise FieldProblem(kind.value, describe(value))
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise FieldProblem("an integer", describe(value))
    if not INT64.min <= value <= INT64.max:
        raise FieldProblem("an integer of 64 bits", describe(value))
    return value


def _number(value: Any) -> float:
    """A float; JSON's null is NaN."""
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        raise FieldProblem("a number", describe(value))
    try:
        return float(value)
    except OverflowError:
        raise FieldProblem("a number", describe(value)) from None


def _finite(value: Any) -> float:
    number = _number(value)
    if not math.isfinite(number):
        raise FieldProblem("a finite number", describe(value))
    return number


def _text(value: Any) -> str:
    if type(value) is not str:
        raise FieldProblem("a string", describe(value))
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldProblem("a string of Unicode characters", describe(value)) from None
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise FieldProblem("true or false", describe(value))
    return value


def _byte(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 255:
        raise FieldProblem("an integer 0 … 255", describe(value))
    return value


def _ints(value: Any) -> Any:
    items = _list(value, Kind.INTS)
    if set(map(type, items)) <= {int}:
        try:
            return np.array(items, np.int64)
        except OverflowError:
            pass  # found again below, with its index
    return np.array(_each(_integer, items), np.int64)


def _optional_ints(value: Any) -> Any:
    items = _list(value, Kind.OPTIONAL_INTS)
    return _ints([UNKNOWN_TOKEN if item is None else item for item in items])


def _floats(value: Any) -> Any:
    return np.array(_each(_number, _list(value, Kind.FLOATS)), np.float64)


def _bytes(value: Any) -> Any:
    items = _list(value, Kind.BYTES)
    if set(map(type, items)) <= {int}:
        try:
            return np.frombuffer(bytearray(items), np.uint8)
        except ValueError:
            pass  # found again below, with its index
    return np.array(_each(_byte, items), np.uint8)


def _bools(value: Any) -> Any:
    return np.array(_each(_flag, _list(value, Kind.BOOLS)), np.bool_)


def _ragged(value: Any) -> Any:
    return tuple(_each(_ints, _list(value, Kind.RAGGED_INTS)))


def _pair(value: Any) -> list[float]:
    if type(value) is not list or len(value) != 2:
        raise FieldProblem("a pair [id, logit]", describe(value))
    return [_at(0, _token, value[0]), _at(1, _number, value[1])]


def _at(index: int, decode: Decoder, value: Any) -> Any:
    try:
        return decode(value)
    except FieldProblem as problem:
        raise problem.inside(f"[{index}]") from None


def _token(value: Any) -> float:
    token = _integer(value)
    if abs(token) > MAX_EXACT:
        raise FieldProblem("a token id of at most 2**53", describe(token))
    return float(token)


def _top2_row(value: Any) -> list[list[float]]:
    if value is None:
        return [[math.nan, math.nan]] * 2
    if type(value) is not list or len(value) != 2:
        raise FieldProblem("two pairs [id, logit] or null", describe(value))
    return _each(_pair, value)


def _top2(value: Any) -> Any:
    rows = _each(_top2_row, _list(value, Kind.TOP2))
    return np.array(rows, np.float64).reshape(len(rows), 2, 2)


def _string_map(value: Any) -> dict[int, str]:
    if type(value) is not dict:
        raise FieldProblem(Kind.STR_MAP.value, describe(value))
    return {_key(key): _entry(key, text) for key, text in value.items()}


def _key(key: str) -> int:
    digits = key.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20) or str(int(key)) != key:
        raise FieldProblem("an integer as key", describe(key))
    return _integer(int(key))


def _entry(key: str, text: Any) -> str:
    try:
        return _text(text)
    except FieldProblem as problem:
        raise problem.inside(f"[{key}]") from None


DECODE: dict[Kind, Decoder] = {
    Kind.INT: _integer,
    Kind.FLOAT: _finite,
    Kind.STR: _text,
    Kind.BOOL: _flag,
    Kind.INTS: _ints,
    Kind.OPTIONAL_INTS: _optional_ints,
    Kind.FLOATS: _floats,
    Kind.BYTES: _bytes,
    Kind.BOOLS: _bools,
    Kind.RAGGED_INTS: _ragged,
    Kind.TOP2: _top2,
    Kind.STR_MAP: _string_map,
}


def _null_for_nan(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _top2_row_to_json(row: Any) -> list[list[Any]] | None:
    if np.isnan(row).all():
        return None
    if np.isnan(row[:, 0]).any():
        raise FieldProblem("a token id beside every logit", "none")
    return [[int(token), None if math.isnan(logit) else logit] for token, logit in row.tolist()]


ENCODE: dict[Kind, Callable[[Any], Any]] = {
    Kind.INT: int,
    Kind.FLOAT: float,
    Kind.STR: str,
    Kind.BOOL: bool,
    Kind.INTS: lambda array: array.tolist(),
    Kind.OPTIONAL_INTS: lambda array: [None if v == UNKNOWN_TOKEN else v for v in array.tolist()],
    Kind.FLOATS: _null_for_nan,
    Kind.BYTES: lambda array: array.tolist(),
    Kind.BOOLS: lambda array: array.tolist(),
    Kind.RAGGED_INTS: lambda arrays: [array.tolist() for array in arrays],
    Kind.TOP2: lambda rows: [_top2_row_to_json(row) for row in rows],
    Kind.STR_MAP: lambda texts: {str(key): text for key, text in texts.items()},
}
