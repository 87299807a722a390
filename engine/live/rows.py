"""A row a rank, from its trace and its health file, whichever there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.live.heartbeat import Heartbeat, state_of
from engine.live.rank import RankFollower
from engine.live.state import RankRow


def rank_rows(
    series: Mapping[tuple[str, str], RankFollower],
    beats: Iterable[Heartbeat],
    newest: Mapping[str, int],
    now: float,
) -> tuple[RankRow, ...]:
    """Rows in order of group and rank. ``series``: by (group, series); ``newest``: step of each group."""
    beats = list(beats)
    placed = {beat.place: beat for beat in beats if beat.place is not None}
    rows, used = [], set()
    for (group, _), follower in series.items():
        beat = None if follower.rank is None else placed.get((group, follower.rank))
        rows.append(_traced(group, follower, beat, newest.get(group, -1), now))
        used.add((group, follower.rank))
    rows += [_bare(beat, now) for beat in beats if beat.place not in used]
    return tuple(
        sorted(rows, key=lambda row: (row.group, row.rank is None, row.rank or 0, row.name))
    )


def _traced(
    group: str, follower: RankFollower, beat: Heartbeat | None, newest: int, now: float
) -> RankRow:
    broken = beat.health.problem if beat is not None else None
    return RankRow(
        name=follower.name,
        path=follower.path,
        group=group,
        rank=follower.rank,
        state=state_of(follower, beat, newest=newest, now=now),
        steps=follower.steps,
        last_step=follower.last_step if follower.steps else None,
        steps_a_second=follower.steps_a_second(),
        acceptance=follower.acceptance,
        age=now - follower.last_at,
        problem=follower.problem or broken,
        faults=follower.faults,
        **_told(beat),
    )


def _bare(beat: Heartbeat, now: float) -> RankRow:
    """A health file without a trace."""
    group, rank = beat.place or ("", None)
    state = state_of(None, beat, newest=-1, now=now)
    problem = beat.health.problem
    return RankRow(beat.name, None, group, rank, state, problem=problem, **_told(beat))


def _told(beat: Heartbeat | None) -> dict[str, Any]:
    """What the health file says, as fields of a row."""
    if beat is None:
        return {}
    health = beat.health
    return {
        "seen": health.seen,
        "written": health.written,
        "dropped": health.dropped,
        "hooks": None if health.hooks is None else len(health.hooks),
        "missing": (*health.lost, *(health.missing or ())),
        "last_error": health.last_error,
        "stopped": health.stopped,
    }
