"""The health file of one rank as it is renewed; what a rank does follows from it and from its steps."""

from __future__ import annotations

from collections.abc import Callable

from engine.live.health import MAX_BYTES, Health, health_from_bytes
from engine.live.rank import RankFollower
from engine.live.source import Directory, FileInfo
from engine.live.state import RankState

SILENT = 5.0  # seconds
DROPPING = 10.0  # seconds since the last dropped step


class Heartbeat:
    """Follow one health file."""

    def __init__(
        self, directory: Directory, info: FileInfo, clock: Callable[[], float], age: float
    ):
        self._directory, self._clock, self.name = directory, clock, info.name
        self.place: tuple[str, int] | None = None  # group and rank, as far as the name tells
        self.health = Health()
        self._seen: tuple[FileInfo, bytes] | None = None
        self.renewed_at = clock() - age
        self._dropped_at: float | None = None

    def look(self, info: FileInfo) -> None:
        """Read the file as it is now; one that cannot be read is this rank's trouble alone."""
        try:
            now = (info, self._directory.read(info.name, 0, MAX_BYTES + 1))
        except OSError as error:
            self._seen, self.health = None, Health(problem=str(error))
            return
        if now == self._seen:
            return
        health = health_from_bytes(now[1])
        if self._seen is not None:
            self.renewed_at = self._clock()
            if (health.dropped or 0) > (self.health.dropped or 0):
                self._dropped_at = self.renewed_at
        self._seen, self.health = now, health

    @property
    def fresh(self) -> bool:
        """Whether it was renewed within the last seconds."""
        return self._clock() - self.renewed_at <= SILENT

    @property
    def dropping(self) -> bool:
        """Whether a step was dropped within the last seconds."""
        at = self._dropped_at
        return at is not None and self._clock() - at <= DROPPING


def state_of(
    follower: RankFollower | None, beat: Heartbeat | None, *, newest: int, now: float
) -> RankState:
    """``newest``: the highest step number of any rank that still records."""
    if follower is not None and follower.problem is not None:
        return RankState.UNREADABLE
    if follower is not None and follower.ended:
        return RankState.ENDED
    if beat is not None and beat.health.stopped is not None:
        return RankState.STOPPED
    if beat is not None and _lacks_hooks(beat.health, follower is not None and follower.steps > 0):
        return RankState.HOOK_MISSING
    quiet = follower is None or now - follower.last_at > SILENT
    left_behind = follower is not None and follower.last_step < newest
    if quiet and (left_behind or beat is None or not beat.fresh):
        return RankState.SILENT
    if beat is not None and beat.dropping:
        return RankState.DROPPING
    if follower is None or not follower.steps:
        return RankState.STARTING
    return RankState.IDLE if quiet else RankState.RECORDING


def _lacks_hooks(health: Health, recorded: bool) -> bool:
    """A target that this version lacks does not matter where steps come all the same."""
    return bool(health.lost) or (bool(health.missing) and not recorded)
