"""The fields of a record as its dataclass declares them: the one table that both codecs walk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar, cast

from engine.step import Kind, VerifyStep, is_required, kind_of

T = TypeVar("T")


def once_a_type(function: Callable[[type[Any]], T]) -> Callable[[type[Any]], T]:
    """``functools.cache`` for a function of a record's type, which mypy takes for unhashable."""
    return cast(Callable[[type[Any]], T], cache(function))


@dataclass(frozen=True)
class Declared:
    """One field: ``item`` is the nested record's type, ``default`` what an absent field stands
    for.
    """

    name: str
    kind: Kind
    item: type[Any]
    required: bool
    default: Any


@once_a_type
def declared(record: type[Any]) -> tuple[Declared, ...]:
    """Fields of a record's type in the order of their declaration."""
    return tuple(
        Declared(
            field.name,
            kind_of(field),
            field.metadata["item"] or object,
            is_required(field),
            None if is_required(field) else field.default,
        )
        for field in fields(record)
    )


@once_a_type
def stored(record: type[Any]) -> tuple[Declared, ...]:
    """Fields in the order of Arrow's storage: a step's numbers come first, so that they are found without decoding
    it.
    """
    if record is not VerifyStep:
        return declared(record)
    return tuple(sorted(declared(record), key=lambda field: field.kind is not Kind.INT))


@once_a_type
def names(record: type[Any]) -> frozenset[str]:
    """Names of a record's fields."""
    return frozenset(field.name for field in declared(record))


def is_empty(record: Any) -> bool:
    """Whether every field of a record is None."""
    return all(getattr(record, field.name) is None for field in declared(type(record)))
