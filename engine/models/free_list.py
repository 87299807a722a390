"""A pool of numbers handed out lowest first, so that the same calls always give the same
numbers.
"""

from __future__ import annotations

import heapq


class PoolExhausted(RuntimeError):
    """More slots or request rows were asked for than are free."""


class FreeList:
    """The free numbers of 1 … size - 1, lowest first."""

    def __init__(self, what: str, size: int) -> None:
        self.what = what
        self.size = size
        self._heap = list(range(1, size))
        self._free = set(self._heap)

    @property
    def available(self) -> int:
        """How many numbers are free."""
        return len(self._heap)

    def take(self, count: int) -> list[int]:
        """The ``count`` lowest free numbers, ascending. Raises PoolExhausted and takes none."""
        if count < 0:
            raise ValueError(f"alloc: expected a count of at least 0, found {count}")
        if count > self.available:
            raise PoolExhausted(f"{self.what}: asked for {count}, available {self.available}")
        taken = [heapq.heappop(self._heap) for _ in range(count)]
        self._free.difference_update(taken)
        return taken

    def give_back(self, numbers: list[int]) -> None:
        """All or nothing: on an error no number has been freed."""
        for number in numbers:
            if not 1 <= number < self.size:
                raise ValueError(f"free {self.what}: expected 1 … {self.size - 1}, found {number}")
        again = sorted(self._free.intersection(numbers))
        if again or len(set(numbers)) != len(numbers):
            raise ValueError(
                f"free {self.what}: expected taken ones, each once, found {numbers} "
                f"of which already free: {again}"
            )
        self._free.update(numbers)
        for number in numbers:
            heapq.heappush(self._heap, number)
