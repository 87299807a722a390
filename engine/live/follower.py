"""Follower: a directory of growing traces, looked at when :meth:`Follower.poll` is called.

Nothing runs between polls: whoever stops calling has stopped following. Memory is bounded: a row a file, one cause a
diagnosis, the views of some hundred steps. Not safe to share between threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from engine.checks.context import StepContext
from engine.checks.finding import Finding, Verdict
from engine.checks.rank_views import views_of
from engine.live.agreement import Comparer
from engine.live.health import rank_of
from engine.live.heartbeat import SILENT, Heartbeat, state_of
from engine.live.rank import RankFollower
from engine.live.source import Directory, FileInfo
from engine.live.state import Cause, Faulty, LiveState, RankRow
from engine.trace.writer import SUFFIX

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
        self._files: dict[str, RankFollower] = {}
        self._beats: dict[int, Heartbeat] = {}
        self._owners: dict[int, RankFollower] = {}  # the newest file of each rank
        self._comparer = Comparer()
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
        heard = [f.rank for f in self._heard() if f.rank is not None]
        self._tell(self._comparer.compare(heard))
        return self._state()

    def settle(self) -> LiveState:
        """Compare what still waits for ranks that may never bring it."""
        self._events, self._findings = [], []
        self._tell(self._comparer.compare(()))
        return self._state()

    def _list(self) -> None:
        listed = self.directory.files()
        for info in listed:
            if info.name.endswith(SUFFIX):
                self._look_at_trace(info)
            else:
                self._look_at_health(info)
        gone = set(self._files) - {info.name for info in listed}
        for name in sorted(gone):
            self._events.append(f"{name} is gone")
            del self._files[name]
        self._owners = {r: f for r, f in self._owners.items() if f.name not in gone}

    def _look_at_trace(self, info: FileInfo) -> None:
        follower = self._files.get(info.name)
        if follower is None:
            self._files[info.name] = RankFollower(
                self.directory, info, self._clock, self._age(info)
            )
            self._events.append(f"{info.name} appeared")
            return
        changed = follower.look(info)
        if changed is not None:
            self._events.append(changed)
            self._comparer = Comparer()

    def _look_at_health(self, info: FileInfo) -> None:
        rank = rank_of(info.name)
        if rank is None:
            return
        if rank not in self._beats:
            self._beats[rank] = Heartbeat(self.directory, info, self._clock, self._age(info))
        self._beats[rank].look(info)

    def _age(self, info: FileInfo) -> float:
        """Seconds since a file that is seen for the first time was written."""
        return 0.0 if info.modified is None else max(0.0, self._wall() - info.modified)

    def _read(self) -> None:
        """Some steps of each file in turn, so that ranks stay side by side."""
        until = self._clock() + SECONDS
        for _ in range(STEPS):
            moved = [self._read_one(follower) for follower in list(self._files.values())]
            if not any(moved) or self._clock() > until:
                return

    def _read_one(self, follower: RankFollower) -> bool:
        context = follower.take() if follower.behind else None
        if context is None:
            return False
        step = context.step
        if self._owns(follower, step.rank) and step.world_size > 1:
            self._comparer.add(step.step, step.rank, views_of(context))
        self._tell(context.found)
        self._note_faulty(follower, context)
        return True

    def _owns(self, follower: RankFollower, rank: int) -> bool:
        """Whether this is the newest file of the rank; where it is newly so, the server was started again."""
        owner = self._owners.setdefault(rank, follower)
        if owner is not follower and _newness(follower) > _newness(owner):
            owner.superseded = True
            self._owners[rank] = follower
            self._comparer = Comparer()
            self._events.append(f"rank {rank} goes on in {follower.name}")
        elif owner is not follower:
            follower.superseded = True
        return self._owners[rank] is follower

    def _tell(self, findings: list[Finding]) -> None:
        for finding in findings:
            if finding.consequence_of is None:
                key = (finding.check, finding.diagnosis, finding.verdict)
                held = self._causes.get(key)
                first, count = (finding, 1) if held is None else (held.first, held.count + 1)
                self._causes[key] = Cause(*key, count, first, finding)
            if len(self._findings) < TOLD:
                self._findings.append(finding)

    def _note_faulty(self, follower: RankFollower, context: StepContext) -> None:
        faults = [finding for finding in context.found if finding.verdict is Verdict.FAULT]
        if faults:
            cause = next((finding for finding in faults if finding.is_cause), faults[0])
            self._faulty = Faulty(follower.name, follower.path, cause)

    def _heard(self) -> list[RankFollower]:
        """Files that are still written to."""
        now = self._clock()
        return [
            follower
            for follower in self._files.values()
            if not follower.ended and not follower.problem and now - follower.last_at <= SILENT
        ]

    def _state(self) -> LiveState:
        newest = max((f.last_step for f in self._heard()), default=-1)
        rows = [
            self._row(f, self._beats.get(-1 if f.rank is None else f.rank), newest)
            for f in self._files.values()
        ]
        traced = {follower.rank for follower in self._files.values()}
        rows += [
            self._row(None, beat, newest, rank)
            for rank, beat in self._beats.items()
            if rank not in traced
        ]
        rows.sort(key=lambda row: (row.rank is None, row.rank or 0, row.name))
        return LiveState(
            self.directory.url,
            tuple(rows),
            self._comparer.state,
            tuple(self._causes.values()),
            self._faulty,
            any(follower.behind for follower in self._files.values()),
            self._problem,
            tuple(self._events),
            tuple(self._findings),
        )

    def _row(
        self,
        follower: RankFollower | None,
        beat: Heartbeat | None,
        newest: int,
        rank: int | None = None,
    ) -> RankRow:
        now, state = self._clock(), state_of(follower, beat, newest=newest, now=self._clock())
        told = {} if beat is None else _told(beat)
        if follower is None:
            assert beat is not None
            return RankRow(beat.name, None, rank, state, problem=beat.health.problem, **told)
        return RankRow(
            follower.name,
            follower.path,
            follower.rank,
            state,
            follower.steps,
            follower.last_step if follower.steps else None,
            follower.steps_a_second(),
            follower.acceptance,
            now - follower.last_at,
            problem=follower.problem or (beat.health.problem if beat is not None else None),
            faults=follower.faults,
            **told,
        )


def _newness(follower: RankFollower) -> tuple[float, str]:
    return follower.info.modified or 0.0, follower.name


def _told(beat: Heartbeat) -> dict[str, Any]:
    """What the health file says, as fields of a row."""
    health = beat.health
    return {
        "seen": health.seen,
        "written": health.written,
        "dropped": health.dropped,
        "hooks": None if health.hooks is None else len(health.hooks),
        "missing": health.missing or (),
        "last_error": health.last_error,
    }
