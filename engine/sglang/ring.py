"""Ring: a bounded queue between the server's thread and the feeder's; what does not fit is dropped and counted.

There is one thread on each side and no lock between them: the server's thread never waits. Each counter has one writer.
"""

from __future__ import annotations

from collections import deque

from engine.sglang.parcel import Parcel

MAX_STEPS = 4096
MAX_BYTES = 256 << 20


class Ring:
    """First in, first out; neither end waits."""

    def __init__(self, max_steps: int = MAX_STEPS, max_bytes: int = MAX_BYTES) -> None:
        self.dropped = 0
        self._max = (max_steps, max_bytes)
        self._steps: deque[tuple[Parcel, int]] = deque()
        self._put = self._taken = 0  # bytes

    def put(self, step: Parcel) -> bool:
        """Append, or drop the new step where the ring is full. Returns whether it was kept."""
        size = step.bytes
        if len(self._steps) >= self._max[0] or self._put - self._taken + size > self._max[1]:
            self.dropped += 1
            return False
        self._put += size
        self._steps.append((step, size))
        return True

    def take(self, most: int = 1) -> list[Parcel]:
        """The oldest steps, as many as there are and no more than ``most``."""
        steps: list[Parcel] = []
        while self._steps and len(steps) < most:
            step, size = self._steps.popleft()
            self._taken += size
            steps.append(step)
        return steps

    def __len__(self) -> int:
        return len(self._steps)
