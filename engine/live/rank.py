"""One rank's growing trace, part after part: its new steps through the checks, how fast and how well it goes.

Memory does not grow with the recording. A file that was cut or replaced is read again from its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.checks.context import StepContext
from engine.checks.trace_checker import TraceChecker
from engine.live.source import Directory, FileInfo, GrowingBytes
from engine.live.tail import Tail, tail_of
from engine.step import VerifyStep
from engine.trace.errors import TraceFormatError

WINDOW = 10.0  # seconds that steps a second are counted over
ACCEPTED = 500  # requests of steps that the acceptance length is the mean of
START = 4096  # bytes that tell one file from another

Clock = Callable[[], float]


class RankFollower:
    """Follow the parts of one series in their order. ``clock``: seconds that only grow."""

    def __init__(
        self, directory: Directory, parts: Sequence[FileInfo], clock: Clock, age: float
    ) -> None:
        self._directory, self._clock = directory, clock
        self._parts = list(parts)  # the one that is read first
        self.rank: int | None = None
        self.steps, self.last_step, self.faults = 0, -1, 0
        self.last_at = clock() - age  # when it last grew
        self.superseded = False
        self.problem: str | None = None  # of the part that is read
        self._tail: Tail | None = None
        self._start = b""  # of the part that is read
        self._accepted: deque[int] = deque(maxlen=ACCEPTED)
        self._times: deque[float] = deque()  # of steps that were read once it was caught up with
        self._checker = TraceChecker()
        self._caught_up: float | None = None  # when nothing more was there for the first time
        self._open_first()

    @property
    def info(self) -> FileInfo:
        """The part that is read."""
        return self._parts[0]

    @property
    def name(self) -> str:
        """Of the part that is read."""
        return self.info.name

    @property
    def path(self) -> Path | None:
        """Where that part lies on this machine."""
        return self._directory.local_path(self.name)

    @property
    def newness(self) -> tuple[float, str]:
        """When the newest part was written."""
        return self._parts[-1].modified or 0.0, self._parts[-1].name

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
        while self._times and self._times[0] < now - WINDOW:
            self._times.popleft()
        if self._caught_up is None or now - self._caught_up < 1.0:
            return None
        return len(self._times) / min(WINDOW, now - self._caught_up)

    def look(self, parts: Sequence[FileInfo]) -> str | None:
        """Take in how the parts are listed now; a sentence where the one that is read was cut, replaced or removed.
        Raises ``OSError``.
        """
        held = [info for info in parts if info.name >= self.name]
        if not held or held[0].name != self.name:
            name, self._parts = self.name, held or [parts[-1]]
            self._open_first()
            return f"{name} is gone: it goes on in {self.name}"
        changed = self._changed(held[0])
        if [i.size for i in held] != [i.size for i in self._parts]:
            self.last_at, self._more = self._clock(), True
        self._parts = held
        if changed is not None:
            self._checker = TraceChecker()
            self._open_first()
        self._bytes.grown(self.info.size)
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
            if self._caught_up is None and self.steps:
                self._caught_up = self._clock()
            return None
        context = self._checker.judged(step)
        self._checker.forget()
        self._note(step, context)
        return context

    def _next(self) -> VerifyStep | None:
        """The next step of this part, else of the next one."""
        while True:
            step = self._next_of_part()
            if step is not None or len(self._parts) == 1:
                return step
            del self._parts[0]
            self._open_first()

    def _next_of_part(self) -> VerifyStep | None:
        while self._open():
            assert self._tail is not None
            before = self._tail.offset
            try:
                return self._tail.take()
            except TraceFormatError as error:
                self.problem = str(error)
                self._dead = self._tail.offset == before
        return None

    def _open(self) -> bool:
        if self._dead:
            return False
        try:
            if self._tail is None:
                self._tail = tail_of(self.path or Path(self.name), self._bytes)
            if not self._start:
                self._start = self._bytes.read(0, START)
        except TraceFormatError as error:
            self.problem, self._dead = str(error), True
        return self._tail is not None and not self._dead

    def _note(self, step: VerifyStep, context: StepContext) -> None:
        self.rank, self.last_step = step.rank, step.step
        self.steps += 1
        self.faults += any(finding.verdict == "fault" for finding in context.found)
        lengths = step.outcome.accept_length
        self._accepted.extend([] if lengths is None else lengths.tolist())
        if self._caught_up is not None:
            self._times.append(self._clock())

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

    def _open_first(self) -> None:
        """Read the first part that is left, from its start."""
        self._bytes = GrowingBytes(self._directory, self.name)
        self._bytes.grown(self.info.size)
        self._tail = None
        self._start = b""
        self._dead, self._more = False, True
        self.problem = None
