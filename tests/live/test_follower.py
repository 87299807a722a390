"""A directory of growing traces: what appears, grows, is cut, replaced, falls silent or differs."""

from __future__ import annotations

import gc
import os
import tracemalloc
from itertools import pairwise
from pathlib import Path

import fsspec
import pytest

from engine.live import agreement
from engine.live.follower import Follower
from engine.live.health import health_from_bytes
from engine.live.source import Directory
from engine.live.state import RankState
from engine.trace import TraceHeader, TraceWriter
from tests.factories import ints
from tests.live.recordings import PREDICT, Clock, Ranks, follower, record

WIDTH = ("inputs.qo_indptr", ints(0, 4, 8, 12))


def stand(state) -> str:
    return " ".join(agreement.sentence for agreement in state.agreements)


def states(state) -> list[str]:
    return [str(row.state) for row in state.ranks]


def test_files_appear_and_grow(tmp_path: Path) -> None:
    clock = Clock()
    live = follower(tmp_path, clock)
    state = live.poll()
    assert (state.ranks, state.unreadable, state.problem) == ((), True, None)
    ranks = Ranks(tmp_path, 1)
    ranks.write(0)
    state = live.poll()
    assert state.events == ("rank0.ddtree.arrow appeared",)
    assert [(row.rank, row.steps, row.last_step) for row in state.ranks] == [(0, 1, 0)]
    assert states(state) == ["recording"]
    assert state.ranks[0].acceptance == pytest.approx((3 + 4 + 3) / 3)
    live.poll()  # caught up
    for number in range(1, 11):
        clock.now += 0.5
        ranks.write(number)
        state = live.poll()
    assert state.ranks[0].steps_a_second == pytest.approx(2.0)
    assert not state.has_faults
    assert not state.unreadable
    clock.now += 6
    assert states(live.poll()) == ["silent"]
    ranks.close()
    assert states(live.poll()) == ["ended"]


def test_a_missing_directory_is_told_and_waited_for(tmp_path: Path) -> None:
    live = follower(tmp_path / "later", Clock())
    assert "there is no such directory" in (live.poll().problem or "")
    (tmp_path / "later").mkdir()
    assert live.poll().problem is None


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 1)
    ranks.close()
    file = next(path for path in tmp_path.iterdir() if path.is_file())
    state = follower(file, Clock()).poll()
    assert state.problem == f"{file}: expected a directory, found a file"
    assert not state.ranks


def test_findings_come_with_their_step(tmp_path: Path) -> None:
    live, ranks = follower(tmp_path, Clock()), Ranks(tmp_path, 1)
    ranks.write(0)
    assert live.poll().findings == ()
    ranks.write(1, rank0=WIDTH)
    state = live.poll()
    assert state.has_faults
    assert {finding.step for finding in state.findings} == {1}
    assert state.newest_faulty is not None
    assert state.newest_faulty.finding.check == "I1"
    assert state.newest_faulty.path == tmp_path / "rank0.ddtree.arrow"
    ranks.write(2, rank0=WIDTH)
    state = live.poll()
    assert [cause.count for cause in state.causes if cause.check == "I1"] == [2]
    assert state.ranks[0].faults == 2
    assert live.poll().findings == ()


def test_a_cause_spans_the_steps_of_all_its_files(tmp_path: Path) -> None:
    """Files are read one after the other, and the second may start before the first one ends."""
    live = follower(tmp_path, Clock())
    for folder, steps in ((tmp_path / "dp0", range(6, 15)), (tmp_path / "dp1", range(3, 9))):
        folder.mkdir()
        ranks = Ranks(folder, 1)
        for number in steps:
            ranks.write(number, rank0=WIDTH)
    (cause,) = (cause for cause in live.poll().causes if cause.check == "I1")
    assert (cause.first.step, cause.last.step, cause.count) == (3, 14, 15)


def test_ranks_are_compared_step_by_step(tmp_path: Path) -> None:
    live, ranks = follower(tmp_path, Clock()), Ranks(tmp_path, 8)
    for number in range(14):
        ranks.write(number)
    assert stand(live.poll()) == "ranks 0-7 agree in 14 steps, the newest 13"
    ranks.write(14, only=range(7))
    state = live.poll()
    assert state.agreements[0].steps == 14  # rank 7 is waited for
    ranks.write(14, only=[7], rank7=PREDICT)
    state = live.poll()
    assert stand(state) == "ranks 0-6 agree, rank 7 differs at step 14: predict, row 19"
    (finding,) = [f for f in state.findings if f.check == "I19"]
    assert (finding.rank, finding.found, finding.where.row) == (7, 8, 19)
    ranks.write(15, rank7=PREDICT, rank3=PREDICT)
    assert stand(live.poll()) == (
        "ranks 0-2, 4-6 agree, rank 3 differs at step 15: predict, row 19, "
        "rank 7 differs at step 14: predict, row 19"
    )


def test_a_silent_rank_holds_nobody_up(tmp_path: Path) -> None:
    clock = Clock()
    live, ranks = follower(tmp_path, clock), Ranks(tmp_path, 3)
    ranks.write(0)
    live.poll()
    for number in range(1, 4):
        clock.now += 2
        ranks.write(number, only=[0, 1])
        state = live.poll()
    assert states(state) == ["recording", "recording", "silent"]
    assert state.agreements[0].newest == 3
    ranks.write(1, only=[2], rank2=PREDICT)  # it comes late, and is compared all the same
    assert "rank 2 differs at step 1" in stand(live.poll())


def test_health_files_are_heard(tmp_path: Path) -> None:
    clock = Clock()
    live, ranks = follower(tmp_path, clock), Ranks(tmp_path, 2)
    ranks.write(0)
    ranks.health(0, hooks=["a", "b"], missing=[], steps_written=1, dropped=0)
    ranks.health(1, hooks={"a": True, "b": False}, missing_targets=["eagle_sample"])
    ranks.health(5, last_error="no space left")
    ranks.health(6, missing=["eagle_sample"])
    state = live.poll()
    assert states(state) == ["recording", "hook missing", "starting", "hook missing"]
    assert (state.ranks[0].hooks, state.ranks[0].written) == (2, 1)
    assert state.ranks[1].missing == ("b", "eagle_sample")
    assert (state.ranks[2].rank, state.ranks[2].last_error) == (5, "no space left")
    ranks.health(0, hooks=["a", "b"], missing=["another algorithm"], steps_written=1, dropped=3)
    state = live.poll()
    assert (states(state)[0], state.ranks[0].dropped) == ("dropping", 3)
    clock.now += 11
    assert states(live.poll())[0] == "silent"
    ranks.health(0, hooks=["a", "b"], missing=[], steps_written=2, dropped=3)
    assert states(live.poll())[0] == "idle"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[1]", b"\xff\xfe", b"9" * 70_000, b'{"hooks": 7, "dropped": "many", "seen": -1}'],
)
def test_a_health_file_is_never_believed(tmp_path: Path, data: bytes) -> None:
    live, ranks = follower(tmp_path, Clock()), Ranks(tmp_path, 1)
    ranks.write(0)
    (tmp_path / "health-0.json").write_bytes(data)
    (tmp_path / "health-x.json").write_bytes(data)
    row = live.poll().ranks[0]
    assert row.state is RankState.RECORDING
    assert (row.hooks, row.dropped, row.seen) == (None, None, None)


def test_a_health_file_that_cannot_be_read_is_its_ranks_trouble_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_read, broken = Directory.read, True

    def read(self: Directory, name: str, offset: int, length: int) -> bytes:
        if broken and name.startswith("health"):
            raise OSError(f"{name}: Permission denied")
        return true_read(self, name, offset, length)

    monkeypatch.setattr(Directory, "read", read)
    live, ranks = follower(tmp_path, Clock()), Ranks(tmp_path, 2)
    ranks.write(0)
    ranks.health(0, hooks=["a"], steps_written=1)
    state = live.poll()
    assert state.problem is None
    assert states(state) == ["recording", "recording"]
    assert "Permission denied" in str(state.ranks[0].problem)
    assert state.ranks[1].problem is None
    broken = False
    row = live.poll().ranks[0]
    assert (row.problem, row.hooks) == (None, 1)


def test_a_health_file_that_is_no_json_says_so_in_words() -> None:
    assert health_from_bytes(b"nope").problem == (
        "expected JSON, found expecting value at character 1"
    )
    assert health_from_bytes(b'{"seen": NaN}').problem == (
        "expected a finite number or null, found NaN"
    )


def test_a_cut_or_replaced_file_is_read_again(tmp_path: Path) -> None:
    live, ranks = follower(tmp_path, Clock()), Ranks(tmp_path, 1)
    for number in range(3):
        ranks.write(number)
    assert live.poll().ranks[0].steps == 3
    path = tmp_path / "rank0.ddtree.arrow"
    os.truncate(path, path.stat().st_size - 100)
    state = live.poll()
    assert state.events == ("rank0.ddtree.arrow was cut: it is read again from its start",)
    assert state.ranks[0].last_step == 1
    new = tmp_path / "new"
    with TraceWriter(new, TraceHeader("another")) as out:
        for number in range(9):
            out.write(record(number))
    new.rename(path)
    state = live.poll()
    assert "was replaced" in state.events[0]
    assert state.ranks[0].last_step == 8
    path.unlink()
    assert live.poll().events == ("rank0.ddtree.arrow is gone",)


def test_a_torn_file_is_unreadable_and_the_others_go_on(tmp_path: Path) -> None:
    live, ranks = follower(tmp_path, Clock()), Ranks(tmp_path, 2)
    ranks.write(0)
    live.poll()
    with open(tmp_path / "rank1.ddtree.arrow", "ab") as out:
        out.write(b"what is this? " * 8)
    ranks.write(1, only=[0])
    state = live.poll()
    assert states(state) == ["recording", "unreadable"]
    assert "expected an Arrow message" in (state.ranks[1].problem or "")
    assert state.ranks[0].last_step == 1
    (tmp_path / "x.ddtree.arrow").write_bytes(b"nothing of the kind")
    assert states(live.poll())[-1] == "unreadable"


def test_a_record_that_is_not_complete_is_waited_for(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    with TraceWriter(whole, TraceHeader("test")) as out:
        out.write(record(0))
    data, live = whole.read_bytes(), follower(tmp_path, Clock())
    path = tmp_path / "rank0.ddtree.arrow"
    found = []
    for end in (5, 300, len(data) - 200, len(data) - 8, len(data)):
        path.write_bytes(data[:end])
        row = live.poll().ranks[0]
        found.append((row.steps, row.problem))
    assert found == [(0, None), (0, None), (0, None), (1, None), (1, None)]


def test_a_server_that_starts_again_goes_on_in_new_files(tmp_path: Path) -> None:
    live, ranks = follower(tmp_path, Clock()), Ranks(tmp_path, 2)
    ranks.write(0)
    ranks.write(1, rank1=PREDICT)
    assert "differs at step 1" in stand(live.poll())
    for rank in range(2):
        with TraceWriter(tmp_path / f"again{rank}.ddtree.arrow", TraceHeader("again")) as out:
            out.write(record(0, rank, 2))
        os.utime(tmp_path / f"again{rank}.ddtree.arrow", (2e9, 2e9))
    state = live.poll()
    assert "rank 1 goes on in again1.ddtree.arrow" in state.events
    assert "differs" not in stand(state)


def test_any_file_system_that_fsspec_knows(tmp_path: Path) -> None:
    ranks, system = Ranks(tmp_path, 1), fsspec.filesystem("memory")
    ranks.write(0)
    system.makedirs("/recordings", exist_ok=True)
    live = follower("memory://recordings", Clock())
    try:
        for number in range(1, 4):
            system.pipe(
                "/recordings/rank0.ddtree.arrow", (tmp_path / "rank0.ddtree.arrow").read_bytes()
            )
            row = live.poll().ranks[0]
            assert (row.last_step, row.path) == (number - 1, None)
            ranks.write(number)
    finally:
        system.rm("/recordings", recursive=True)
    assert "no such directory" in (live.poll().problem or "")


@pytest.mark.parametrize("url", ["", "nosuch://x/y", "simplecache::memory://x", "a\0b"])
def test_what_is_no_directory_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Follower(url)


def test_memory_does_not_grow_with_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "KEPT", 8)
    monkeypatch.setattr("engine.checks.trace_checker.MAX_DAMAGED", 8)
    live, ranks = follower(tmp_path, Clock()), Ranks(tmp_path, 2)
    sizes = []
    tracemalloc.start()
    try:
        for number in range(180):
            ranks.write(number, rank1=WIDTH)
            live.poll()
            if number in (59, 119, 179):
                gc.collect()  # what waits to be collected is not kept
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # What is kept grows all the time; a cache of somebody else's fills once.
    assert min(after - before for before, after in pairwise(sizes)) < 180_000, sizes
