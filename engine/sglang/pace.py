"""Pace: how long steps take while they are recorded, while hooks rest, and without hooks, on the server itself.

With ``alternate`` in the control file the three come in turn, with the same requests and the same caches: what differs
is the tap. Two servers, or two runs of one, differ by more than that.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

PAUSE = 30.0  # seconds; a step that seems to take longer waited for something else
WAITING = 4096  # paces that wait for the next report, at most
KEPT = 20_000  # of a kind
KINDS = ("recorded", "resting", "away")  # away: only the hook that counts is in place


class Paced(NamedTuple):
    """From one verification to the next of the same ``requests``, both of one kind."""

    requests: int
    kind: str
    seconds: float


class Pace:
    """Written by the server's thread, taken by the feeder's."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last: tuple[tuple[int, ...], str] | None = None
        self._begun = 0.0
        self._found: deque[Paced] = deque(maxlen=WAITING)

    def step(self, requests: tuple[int, ...], kind: str) -> None:
        """A verification begins. The first after a change is not counted: work of the one before it falls into it, and
        where the requests are others, their prompts' or a wait for them.
        """
        now, found = self._clock(), (requests, kind)
        if found == self._last and now - self._begun < PAUSE:
            self._found.append(Paced(len(requests), kind, now - self._begun))
        self._last, self._begun = found, now

    def take(self) -> list[Paced]:
        """What has come since the last call."""
        found: list[Paced] = []
        while self._found:
            found.append(self._found.popleft())
        return found


class Paces:
    """All of a recording, in the writer's process."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[str, deque[float]]] = defaultdict(dict)

    def add(self, paces: Iterable[Paced]) -> None:
        """Keep the latest of each kind."""
        for requests, kind, seconds in paces:
            self._kept[requests].setdefault(kind, deque(maxlen=KEPT)).append(seconds)

    def found(self) -> dict[str, Any]:
        """By the number of requests: median and mean microseconds and count of steps of each kind, and the ratios of
        both to those without hooks.
        """
        return {str(requests): _told(self._kept[requests]) for requests in sorted(self._kept)}


def _told(kept: dict[str, deque[float]]) -> dict[str, Any]:
    told: dict[str, Any] = {
        kind: {
            "us": round(1e6 * statistics.median(kept[kind]), 1),
            "mean_us": round(1e6 * statistics.fmean(kept[kind]), 1),
            "steps": len(kept[kind]),
        }
        for kind in KINDS
        if kind in kept
    }
    if "away" in told:
        for name, ratio in (("us", "ratio"), ("mean_us", "mean_ratio")):
            own = {k: round(told[k][name] / told["away"][name], 4) for k in told if k in KINDS[:2]}
            told[ratio] = own
    return told
