"""Batches in the first requests of buffers that are made for more of them: what graphs of a few sizes read and fill."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Generic, TypeVar

from torch import Tensor

Value = TypeVar("Value")


class First(Generic[Value]):
    """Views of a value's first requests, made once for each number of them.

    ``value``: a tensor [size * n, …], or a tuple or dataclass of such, ``n`` of its own each; its memory stays.
    """

    def __init__(self, value: Value, size: int) -> None:
        self._value, self._size = value, size
        self._made: dict[int, Value] = {}

    def __call__(self, count: int) -> Value:
        """The part of the first ``count`` requests."""
        if count not in self._made:
            self._made[count] = _part(self._value, 0, count, self._size)
        return self._made[count]


class Padded:
    """Inputs of graphs of all sizes: zero wherever the current batch is not.

    Graphs of ``n`` requests read the first ``n``. What a larger batch has left there goes when a smaller one comes.
    """

    def __init__(self, size: int, *buffers: Tensor) -> None:
        """``buffers``: [size * n, …] each, all zero."""
        self.size, self._buffers = size, buffers
        self.first = First(buffers, size)
        self._live = 0  # requests behind which all is zero

    def only(self, count: int) -> tuple[Tensor, ...]:
        """Buffers of the first ``count`` requests, to be filled; behind them all is zero."""
        if count < self._live:
            for left in _part(self._buffers, count, self._live, self.size):
                left.zero_()
        self._live = count
        return self.first(count)


def _part(value: Any, start: int, stop: int, size: int) -> Any:
    if isinstance(value, Tensor):
        each = len(value) // size
        return value[each * start : each * stop]
    if isinstance(value, tuple):
        return tuple(_part(part, start, stop, size) for part in value)
    return type(value)(*(_part(getattr(value, f.name), start, stop, size) for f in fields(value)))
