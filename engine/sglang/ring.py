"""Ring: a bounded queue between the server's thread and the writer's; what does not fit is dropped and counted."""

from __future__ import annotations

import threading
from collections import deque

from engine.sglang.raw import RawStep

MAX_STEPS = 256
MAX_BYTES = 512 << 20


class Ring:
    """First in, first out. ``put`` never waits for room; ``take`` waits for a step."""

    def __init__(self, max_steps: int = MAX_STEPS, max_bytes: int = MAX_BYTES) -> None:
        self.dropped = 0
        self._max = (max_steps, max_bytes)
        self._steps: deque[RawStep] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def put(self, step: RawStep) -> bool:
        """Append, or drop the new step where the ring is full. Returns whether it was kept."""
        size = step.bytes
        with self._changed:
            if len(self._steps) >= self._max[0] or self._bytes + size > self._max[1]:
                self.dropped += 1
                return False
            self._steps.append(step)
            self._bytes += size
            self._changed.notify()
            return True

    def take(self, timeout: float) -> RawStep | None:
        """The oldest step; None if none came within ``timeout`` seconds."""
        with self._changed:
            if not self._steps:
                self._changed.wait(timeout)
            if not self._steps:
                return None
            step = self._steps.popleft()
            self._bytes -= step.bytes
            return step

    def wake(self) -> None:
        """Let a waiting ``take`` return."""
        with self._changed:
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._steps)
