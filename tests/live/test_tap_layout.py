"""Directories as the tap lays them out: parts, JSON lines, groups of ranks, later starts, its own health files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.live.names import TraceName, health_of, trace_name
from engine.sglang.sink import Format, Sink, free_place
from engine.trace import TraceHeader
from tests.live.recordings import PREDICT, Clock, follower, record

HEADER = TraceHeader(created_by="test")


@pytest.mark.parametrize("form", list(Format))
def test_parts_follow_each_other(tmp_path: Path, form: Format) -> None:
    sink = Sink(tmp_path, "rank0", HEADER, form, part_bytes=1)  # a part a step
    live = follower(tmp_path, Clock())
    for number in range(3):
        sink.write(record(number))
    row = live.poll().ranks[0]
    assert (row.steps, row.last_step) == (3, 2)
    sink.write(record(3))
    state = live.poll()
    (row,) = state.ranks
    assert (row.rank, row.steps, row.last_step, str(row.state)) == (0, 4, 3, "recording")
    assert row.name.startswith("rank0.00003.")
    assert row.path == sink.path
    sink.write(record(4))
    for part in sorted(tmp_path.glob("rank0.0000[0-3].*")):
        part.unlink()  # as the sink does to make room
    state = live.poll()
    assert (state.ranks[0].steps, state.ranks[0].last_step) == (5, 4)
    assert any("is gone: it goes on in rank0.00004." in event for event in state.events)
    sink.close()


def test_a_json_line_that_is_not_complete_is_waited_for(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "rank0", HEADER, Format.JSONL)
    sink.write(record(0))
    assert sink.path is not None
    data, live = sink.path.read_bytes(), follower(tmp_path, Clock())
    with open(sink.path, "ab") as out:
        out.write(data[:-5])
        out.flush()
        assert live.poll().ranks[0].steps == 1
        out.write(data[-5:] + b"\n{oops\n")
        out.flush()
        row = live.poll().ranks[0]
    assert row.steps == 2
    assert str(row.state) == "unreadable"
    assert "rank0.00000.jsonl:4" in (row.problem or "")


def test_groups_are_compared_by_themselves(tmp_path: Path) -> None:
    live = follower(tmp_path, Clock())
    for group, change in (("dp0", []), ("dp1", [PREDICT])):
        for rank in range(2):
            (tmp_path / group).mkdir(exist_ok=True)
            sink = Sink(tmp_path / group, f"rank{rank}", HEADER, Format.ARROW)
            sink.write(record(0, rank, 2, *(change if rank else [])))
            health = {
                "state": "recording",
                "steps": {"written": 1, "dropped": 0},
                "hooks": {"a": True},
            }
            (tmp_path / f"health.{group}-rank{rank}.json").write_text(json.dumps(health))
    state = live.poll()
    assert [(row.group, row.rank, row.written) for row in state.ranks] == [
        (group, rank, 1) for group in ("dp0", "dp1") for rank in (0, 1)
    ]
    assert [agreement.sentence for agreement in state.agreements] == [
        "dp0: ranks 0-1 agree in 1 step, the newest 0",
        "dp1: rank 0 agrees, rank 1 differs at step 0: predict, row 19",
    ]


def test_the_newest_start_is_followed(tmp_path: Path) -> None:
    live = follower(tmp_path, Clock())
    for start in range(2):
        for rank in range(2):
            place = free_place(tmp_path, f"rank{rank}")
            place.mkdir(exist_ok=True)
            sink = Sink(place, f"rank{rank}", HEADER, Format.ARROW)
            sink.write(record(0, rank, 2, *([PREDICT] if rank and not start else [])))
        state = live.poll()
    assert state.events[0] == "the server was started again: again1 is followed"
    assert not any("is gone" in event for event in state.events)
    assert [row.name for row in state.ranks] == [
        f"again1/rank{r}.00000.ddtree.arrow" for r in (0, 1)
    ]
    assert [agreement.sentence for agreement in state.agreements] == [
        "ranks 0-1 agree in 1 step, the newest 0"
    ]


@pytest.mark.parametrize(
    ("health", "state", "notes"),
    [
        ({"state": "not started: functions are missing", "missing": ["start"]}, "stopped", "start"),
        ({"hooks": {"a.b": True, "c.d": False}}, "hook missing", "c.d"),
        ({"state": "stopped: the disk takes no more"}, "stopped", "disk takes no more"),
    ],
)
def test_a_tap_that_does_not_record_says_why(
    tmp_path: Path, health: dict, state: str, notes: str
) -> None:
    (tmp_path / "health.process77.json").write_text(json.dumps(health))
    (row,) = follower(tmp_path, Clock()).poll().ranks
    assert (row.rank, str(row.state)) == (None, state)
    assert notes in f"{row.stopped} {row.missing}"


def test_names() -> None:
    name = "dp0-pp1/again2/rank3.00012.ddtree.arrow"
    assert trace_name(name) == TraceName("dp0-pp1", 2, "dp0-pp1/again2/rank3", 12)
    assert trace_name("story.jsonl") == TraceName("", 0, "story.jsonl", 0)
    assert trace_name("rank0.00001.jsonl").series == trace_name("rank0.00000.jsonl").series
    assert health_of("health.dp0-pp1-rank3.json") == ("dp0-pp1", 3)
    assert health_of("health.rank7.json") == health_of("health-7.json") == ("", 7)
    assert health_of("health.process9.json") is None
