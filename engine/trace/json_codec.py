"""VerifyStep to JSON and back: the step format, version 1.

Which fields there are and how each is written follows from the :class:`Kind` that it declares.
Reading is strict: an unknown field, a duplicate key, a wrong type or a size beyond
``engine.trace.limits`` is a :class:`TraceFormatError` that names the place, never a guess. Not
covered: whether the step is right (the checks).
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

from engine.step import FORMAT, VERSION, Kind, VerifyStep
from engine.trace.errors import FieldProblem, TraceFormatError, describe, split_where
from engine.trace.fields import Declared, declared, is_empty, names
from engine.trace.json_values import DECODE, ENCODE
from engine.trace.limits import MAX_CONTAINERS, MAX_LINE_BYTES
from engine.trace.validate import validate_step

SCALAR_FOR_ONE_REQUEST = "recurrent_index"  # a bare integer stands for a list of one
INFINITE = re.compile(r'"(?:[^"\\]|\\.)*"|Infinity')


def step_to_json(step: VerifyStep) -> dict[str, Any]:
    """One step as plain JSON values; fields that are not known and groups without any are left out.

    Infinite numbers stay Python floats here; :func:`dumps` writes them so that JSON readers accept
    them. Raises ``TraceFormatError`` for a record that could not be read back.
    """
    try:
        validate_step(step)
        return {"format": FORMAT, "version": VERSION, **_record_to_json(step)}
    except FieldProblem as problem:
        raise problem.at("", None) from None


def dumps(step: VerifyStep) -> str:
    """One step as one line of JSON without its newline; NaN is null, an infinity is ±1e999."""
    text = json.dumps(step_to_json(step), ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
    if "Infinity" in text:
        text = INFINITE.sub(lambda m: "1e999" if m[0] == "Infinity" else m[0], text)
    return text


def loads(text: str, where: str = "") -> VerifyStep:
    """One step from one line of JSON. ``where``: ``"file:line"`` for error messages.

    Raises ``TraceFormatError``.
    """
    file, line = split_where(where)
    try:
        obj = parse_json(text)
    except FieldProblem as problem:
        raise problem.at(file, line) from None
    return step_from_json(obj, where)


def step_from_json(obj: Any, where: str = "") -> VerifyStep:
    """One step from plain JSON values. Raises ``TraceFormatError``."""
    file, line = split_where(where)
    try:
        step = _step(obj)
        validate_step(step)
        return step
    except FieldProblem as problem:
        raise problem.at(file, line) from None


def parse_json(text: str, limit: int = MAX_LINE_BYTES) -> Any:
    """Plain JSON without NaN, Infinity and duplicate keys. Raises ``FieldProblem``."""
    if len(text) > limit:
        raise FieldProblem(f"at most {limit} bytes of JSON", f"{len(text)} characters")
    if text.count("[") + text.count("{") > MAX_CONTAINERS:
        raise FieldProblem(f"at most {MAX_CONTAINERS} lists and objects", "more")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        found = f"{error.msg.lower()} at character {error.pos + 1}"
        raise FieldProblem("JSON", found) from None
    except RecursionError:
        raise FieldProblem("JSON nested a few levels deep", "too many levels") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise FieldProblem("an integer of 64 bits", describe(str(error))) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise FieldProblem("each key once", f"{describe(twice)} twice", field_name(twice))
    return result


def _constant(literal: str) -> Any:
    raise FieldProblem("a finite number or null", literal)


def field_name(key: str) -> str:
    """A foreign key as it may appear in a field path."""
    return key if key.isidentifier() and len(key) <= 40 else f"[{describe(key)}]"


def _step(obj: Any) -> VerifyStep:
    if type(obj) is not dict:
        raise FieldProblem("a step (an object)", describe(obj))
    for key, value in (("format", FORMAT), ("version", VERSION)):
        found = obj.get(key)
        if type(found) is not type(value) or found != value:
            shown = describe(found) if key in obj else "no such field"
            raise FieldProblem(repr(value), shown, key)
    body = {key: value for key, value in obj.items() if key not in ("format", "version")}
    step: VerifyStep = _record(VerifyStep, body)
    return step


def _record(record: type[Any], obj: Any) -> Any:
    """A dataclass from an object; unknown keys are refused, null is an absent field."""
    if type(obj) is not dict:
        raise FieldProblem(Kind.GROUP.value, describe(obj))
    if not obj.keys() <= names(record):
        raise _unknown(record, next(key for key in obj if key not in names(record)))
    values = {}
    for field in declared(record):
        value = obj.get(field.name)
        if value is None:
            if field.required:
                shown = "null" if field.name in obj else "no such field"
                raise FieldProblem(field.kind.value, shown, field.name)
            continue
        try:
            values[field.name] = _value(field, value)
        except FieldProblem as problem:
            raise problem.inside(field.name) from None
    return record(**values)


def _value(field: Declared, value: Any) -> Any:
    if field.kind is Kind.GROUP:
        return _record(field.item, value)
    if field.kind is Kind.GROUPS:
        return _records(field, value)
    if field.name == SCALAR_FOR_ONE_REQUEST and type(value) is int:
        value = [value]
    return DECODE[field.kind](value)


def _records(field: Declared, value: Any) -> tuple[Any, ...]:
    if type(value) is not list:
        raise FieldProblem(field.kind.value, describe(value))
    records = []
    for index, item in enumerate(value):
        try:
            records.append(_record(field.item, item))
        except FieldProblem as problem:
            raise problem.inside(f"[{index}]") from None
    return tuple(records)


def _unknown(record: type[Any], key: str) -> FieldProblem:
    known = sorted(names(record))
    near = difflib.get_close_matches(key[:100], known, n=3) or known
    return FieldProblem(
        f"a known field (nearest: {', '.join(near)})", describe(key), field_name(key)
    )


def _record_to_json(record: Any) -> dict[str, Any]:
    result = {}
    for field in _plain_first(type(record)):
        value = getattr(record, field.name)
        if value is None or (field.kind is Kind.GROUP and not field.required and is_empty(value)):
            continue
        try:
            result[field.name] = _value_to_json(field, value)
        except FieldProblem as problem:
            raise problem.inside(field.name) from None
    return result


def _plain_first(record: type[Any]) -> list[Declared]:
    """A step begins with its number and rank, then its groups."""
    if record is not VerifyStep:
        return list(declared(record))
    return sorted(declared(record), key=lambda field: field.kind is not Kind.INT)


def _value_to_json(field: Declared, value: Any) -> Any:
    if field.kind is Kind.GROUP:
        return _record_to_json(value)
    if field.kind is Kind.GROUPS:
        return [_record_to_json(item) for item in value]
    return ENCODE[field.kind](value)


__all__ = ["TraceFormatError", "dumps", "loads", "parse_json", "step_from_json", "step_to_json"]
