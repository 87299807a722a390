"""One growing trace: its new steps through the checks, and how fast and how well it goes.

Memory does not grow with the recording. A file that was cut or replaced is read again from its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from engine.checks.context import StepContext
from engine.checks.trace_checker import TraceChecker
from engine.live.source import Directory, FileInfo, GrowingBytes
from engine.live.tail import ArrowTail, has_schema
from engine.step import VerifyStep
from engine.trace.errors import TraceFormatError

WINDOW = 10.0  # seconds that steps a second are counted over
ACCEPTED = 500  # requests of steps that the acceptance length is the mean of
START = 4096  # bytes that tell one file from another

Clock = Callable[[], float]


class RankFollower:
    """Follow one file. ``clock``: seconds that only grow."""

    def __init__(self, directory: Directory, info: FileInfo, clock: Clock, age: float) -> None:
        self._directory, self._clock = directory, clock
        self.name, self.info = info.name, info
        self.path = directory.local_path(info.name)
        self.rank: int | None = None
        self.steps, self.last_step, self.faults = 0, -1, 0
        self.problem: str | None = None
        self.last_at = clock() - age  # when it last grew
        self.superseded = False
        self._accepted: deque[int] = deque(maxlen=ACCEPTED)
        self._times: deque[tuple[float, int]] = deque()  # (when, steps read then), once caught up
        self._tail: ArrowTail | None = None
        self._caught_up: float | None = (
            None  # when there was nothing more to read for the first time
        )
        self._restart()

    @property
    def ended(self) -> bool:
        """Whether its writer closed it, or another file took its rank."""
        return self.superseded or (self._tail is not None and self._tail.ended)

    @property
    def behind(self) -> bool:
        """Whether complete steps may be left to read."""
        return self._more

    @property
    def acceptance(self) -> float | None:
        """Tokens that a step accepts of a request, root included; the mean of the newest."""
        return sum(self._accepted) / len(self._accepted) if self._accepted else None

    def steps_a_second(self) -> float | None:
        """Over the last seconds; None before the file was caught up with."""
        now = self._clock()
        while self._times and self._times[0][0] < now - WINDOW:
            self._times.popleft()
        if self._caught_up is None or now - self._caught_up < 1.0:
            return None
        return sum(count for _, count in self._times) / min(WINDOW, now - self._caught_up)

    def look(self, info: FileInfo) -> str | None:
        """Take in how the file is listed now; a sentence where it was cut or replaced. Raises ``OSError``."""
        changed = self._changed(info)
        if info.size != self.info.size:
            self.last_at, self._more = self._clock(), True
        self.info = info
        if changed is not None:
            self._restart()
        self._bytes.grown(info.size)
        return (
            None
            if changed is None
            else f"{self.name} was {changed}: it is read again from its start"
        )

    def take(self) -> StepContext | None:
        """The next step with its findings; None where there is none. Raises ``OSError``; what is wrong with the
        file itself becomes its ``problem``.
        """
        step = self._next()
        if step is None:
            self._more = False
            if self._caught_up is None and self._tail is not None:
                self._caught_up = self._clock()
            return None
        context = self._checker.judged(step)
        self._checker.forget()
        self._note(step, context)
        return context

    def _next(self) -> VerifyStep | None:
        while self._open():
            assert self._tail is not None
            before = self._tail.offset
            try:
                return self._tail.take()
            except TraceFormatError as error:
                self.problem = str(error)
                if self._tail.offset == before:
                    self._dead = True
        return None

    def _open(self) -> bool:
        if self._dead:
            return False
        try:
            if self._tail is None and has_schema(self._bytes):
                self._start = self._bytes.read(0, START)
                self._tail = ArrowTail(self.path or Path(self.name), self._bytes)
        except TraceFormatError as error:
            self.problem, self._dead = str(error), True
        return self._tail is not None

    def _note(self, step: VerifyStep, context: StepContext) -> None:
        self.rank, self.last_step = step.rank, step.step
        self.steps += 1
        self.faults += any(finding.verdict == "fault" for finding in context.found)
        lengths = step.outcome.accept_length
        self._accepted.extend([] if lengths is None else lengths.tolist())
        if self._caught_up is not None:
            self._times.append((self._clock(), 1))

    def _changed(self, info: FileInfo) -> str | None:
        if self._tail is None:
            return None
        if info.size < self._tail.offset:
            return "cut"
        if info.identity != self.info.identity:
            return "replaced"
        if info.size != self.info.size:
            now = self._directory.read(self.name, 0, len(self._start))
            return None if now == self._start else "replaced"
        return None

    def _restart(self) -> None:
        self._bytes = GrowingBytes(self._directory, self.name)
        self._bytes.grown(self.info.size)
        self._tail = None
        self._checker = TraceChecker()
        self._start = b""
        self._dead, self._more, self.problem = False, True, None
        self._caught_up = None
        self._times.clear()
