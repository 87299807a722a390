"""Follower: a directory of growing traces, looked at when :meth:`Follower.poll` is called.

Nothing runs between polls: whoever stops calling has stopped following. Memory is bounded: a row a file, one cause a
diagnosis, the views of some hundred steps. Not safe to share between threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.checks.context import StepContext
from engine.checks.finding import Finding, Verdict
from engine.checks.rank_views import views_of
from engine.live.agreement import Comparer
from engine.live.heartbeat import SILENT, Heartbeat
from engine.live.names import TraceName, health_of, trace_name
from engine.live.rank import RankFollower
from engine.live.rows import rank_rows
from engine.live.source import Directory, FileInfo
from engine.live.state import Cause, Faulty, LiveState

STEPS = 64  # of one file that one poll reads
SECONDS = 1.0  # after which a poll ends, whatever is left
TOLD = 200  # findings of one poll that are told one by one


class Follower:
    """Follow ``url``. ``clock``: seconds that only grow; ``wall``: seconds since 1970. Raises ``ValueError``."""

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.directory = Directory(url)
        self._clock, self._wall = clock, wall
        self._series: dict[tuple[str, str], RankFollower] = {}  # (group, series)
        self._beats: dict[str, Heartbeat] = {}  # by name
        self._starts: dict[str, int] = {}  # of each group: the server's newest start
        self._owners: dict[tuple[str, int], RankFollower] = {}  # (group, rank): its newest series
        self._comparers: dict[str, Comparer] = {}  # of each group
        self._causes: dict[tuple[str, str | None, Verdict], Cause] = {}
        self._faulty: Faulty | None = None
        self._events: list[str] = []
        self._findings: list[Finding] = []
        self._problem: str | None = None

    def poll(self) -> LiveState:
        """Look once; read what is new, at most for about a second. Never raises for what lies in the directory."""
        self._events, self._findings, self._problem = [], [], None
        try:
            self._list()
            self._read()
        except OSError as error:
            self._problem = str(error)
        heard = self._heard()
        for group, comparer in self._comparers.items():
            self._tell(
                comparer.compare(f.rank for (g, _), f in heard if g == group and f.rank is not None)
            )
        return self._state()

    def settle(self) -> LiveState:
        """Compare what still waits for ranks that may never bring it."""
        self._events, self._findings = [], []
        for comparer in self._comparers.values():
            self._tell(comparer.compare(()))
        return self._state()

    def _list(self) -> None:
        parts: dict[tuple[str, str], list[FileInfo]] = {}
        for info in self._newest_start(self.directory.files()):
            name = trace_name(info.name)
            parts.setdefault((name.group, name.series), []).append(info)
        for key in [key for key in self._series if key not in parts]:
            self._events.append(f"{self._series.pop(key).name} is gone")
        self._owners = {k: f for k, f in self._owners.items() if f in self._series.values()}
        for key, infos in parts.items():
            self._look_at_trace(key, infos)

    def _newest_start(self, infos: list[FileInfo]) -> list[FileInfo]:
        """Traces of each group's newest start; health files are looked at on the way."""
        named: list[tuple[TraceName, FileInfo]] = []
        for info in infos:
            if info.name.rpartition("/")[2].startswith("health"):
                self._look_at_health(info)
            else:
                named.append((trace_name(info.name), info))
        for name, _ in named:
            if name.start > self._starts.setdefault(name.group, name.start):
                self._starts[name.group] = name.start
                self._restarted(name)
        return [info for name, info in named if name.start == self._starts[name.group]]

    def _restarted(self, name: TraceName) -> None:
        """What an earlier start recorded is not looked at any more."""
        self._comparers.pop(name.group, None)
        self._series = {k: f for k, f in self._series.items() if k[0] != name.group}
        where = f"{name.group}: " if name.group else ""
        self._events.append(f"{where}the server was started again: again{name.start} is followed")

    def _look_at_trace(self, key: tuple[str, str], infos: list[FileInfo]) -> None:
        follower = self._series.get(key)
        if follower is None:
            self._series[key] = RankFollower(
                self.directory, infos, self._clock, self._age(infos[-1])
            )
            self._events.append(f"{infos[0].name} appeared")
            return
        changed = follower.look(infos)
        if changed is not None:
            self._events.append(changed)
            self._comparers.pop(key[0], None)

    def _look_at_health(self, info: FileInfo) -> None:
        beat = self._beats.get(info.name)
        if beat is None:
            beat = Heartbeat(self.directory, info, self._clock, self._age(info))
            beat.place = health_of(info.name)
            self._beats[info.name] = beat
        beat.look(info)

    def _age(self, info: FileInfo) -> float:
        """Seconds since a file that is seen for the first time was written."""
        return 0.0 if info.modified is None else max(0.0, self._wall() - info.modified)

    def _read(self) -> None:
        """Some steps of each file in turn, so that ranks stay side by side."""
        until = self._clock() + SECONDS
        for _ in range(STEPS):
            moved = [self._read_one(key[0], f) for key, f in list(self._series.items())]
            if not any(moved) or self._clock() > until:
                return

    def _read_one(self, group: str, follower: RankFollower) -> bool:
        context = follower.take() if follower.behind else None
        if context is None:
            return False
        step = context.step
        if self._owns(group, follower, step.rank) and step.world_size > 1:
            comparer = self._comparers.setdefault(group, Comparer(group))
            comparer.add(step.step, step.rank, views_of(context))
        self._tell(context.found)
        self._note_faulty(follower, context)
        return True

    def _owns(self, group: str, follower: RankFollower, rank: int) -> bool:
        """Whether this is the rank's newest series; where it is newly so, the server was started again."""
        owner = self._owners.setdefault((group, rank), follower)
        if owner is not follower and follower.newness > owner.newness:
            owner.superseded = True
            self._owners[group, rank] = owner = follower
            self._comparers.pop(group, None)
            self._events.append(f"rank {rank} goes on in {follower.name}")
        follower.superseded = owner is not follower
        return owner is follower

    def _tell(self, findings: list[Finding]) -> None:
        for finding in findings:
            if finding.consequence_of is None:
                key = (finding.check, finding.diagnosis, finding.verdict)
                held = self._causes.get(key)
                first, last, count = finding, finding, 1
                if held is not None:
                    # Files are read one after the other, and each has steps of its own.
                    first = min(held.first, finding, key=_step)
                    last = max(finding, held.last, key=_step)
                    count = held.count + 1
                self._causes[key] = Cause(*key, count, first, last)
            if len(self._findings) < TOLD:
                self._findings.append(finding)

    def _note_faulty(self, follower: RankFollower, context: StepContext) -> None:
        faults = [finding for finding in context.found if finding.verdict is Verdict.FAULT]
        if faults:
            cause = next((finding for finding in faults if finding.is_cause), faults[0])
            self._faulty = Faulty(follower.name, follower.path, cause)

    def _heard(self) -> list[tuple[tuple[str, str], RankFollower]]:
        """Series that are still written to."""
        now = self._clock()
        return [
            (key, follower)
            for key, follower in self._series.items()
            if not follower.ended and not follower.problem and now - follower.last_at <= SILENT
        ]

    def _state(self) -> LiveState:
        newest: dict[str, int] = {}
        for (group, _), follower in self._heard():
            newest[group] = max(newest.get(group, -1), follower.last_step)
        agreements = [self._comparers[group].state for group in sorted(self._comparers)]
        return LiveState(
            url=self.directory.url,
            ranks=rank_rows(self._series, self._beats.values(), newest, self._clock()),
            agreements=tuple(agreement for agreement in agreements if len(agreement.ranks) > 1),
            causes=tuple(self._causes.values()),
            newest_faulty=self._faulty,
            behind=any(follower.behind for follower in self._series.values()),
            problem=self._problem,
            events=tuple(self._events),
            findings=tuple(self._findings),
        )


def _step(finding: Finding) -> int:
    return -1 if finding.step is None else finding.step
