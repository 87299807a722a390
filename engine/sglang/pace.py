"""Pace: how long steps take while they are recorded and while they are not, on the server itself.

With ``alternate`` in the control file both come in turn, with the same requests and the same caches: what differs is
the recording. Two servers, or two runs of one, differ by more than that.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

PAUSE = 0.25  # seconds; a step that seems to take longer waited for requests
WAITING = 4096  # paces that wait for the next report, at most
KEPT = 4000  # of a kind


class Paced(NamedTuple):
    """From one verification to the next of a batch of ``requests``, both recorded or both not."""

    requests: int
    recorded: bool
    seconds: float


class Pace:
    """Written by the server's thread, taken by the feeder's."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last: tuple[int, bool] | None = None
        self._begun = 0.0
        self._found: deque[Paced] = deque(maxlen=WAITING)

    def step(self, requests: int, recorded: bool) -> None:
        """A verification begins. The first after a change is not counted: work of the one before it falls into it."""
        now, kind = self._clock(), (requests, recorded)
        if kind == self._last and now - self._begun < PAUSE:
            self._found.append(Paced(requests, recorded, now - self._begun))
        self._last, self._begun = kind, now

    def take(self) -> list[Paced]:
        """What has come since the last call."""
        found: list[Paced] = []
        while self._found:
            found.append(self._found.popleft())
        return found


class Paces:
    """All of a recording, in the writer's process."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, bool], deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))

    def add(self, paces: Iterable[Paced]) -> None:
        """Keep the latest of each kind."""
        for requests, recorded, seconds in paces:
            self._kept[requests, recorded].append(seconds)

    def found(self) -> dict[str, Any]:
        """By the number of requests: median microseconds and count of steps of either kind, and the ratio of both."""
        told: dict[str, Any] = {}
        for requests, recorded in sorted(self._kept):
            seconds = self._kept[requests, recorded]
            own = told.setdefault(str(requests), {})
            name = "recorded" if recorded else "resting"
            own[name] = {"us": round(1e6 * statistics.median(seconds), 1), "steps": len(seconds)}
        for own in told.values():
            if len(own) == 2:
                own["ratio"] = round(own["recorded"]["us"] / own["resting"]["us"], 4)
        return told
