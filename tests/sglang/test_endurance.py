"""What the recording survives: a process that is killed, a full disk, a ring that is full, parts that grow too many."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.sglang import recorder as recorder_module
from engine.sglang.assemble import Origin
from engine.sglang.control import Control, ControlError, control_from, read_control
from engine.sglang.pace import Paced
from engine.sglang.raw import Ends
from engine.sglang.recorder import Recorder, Report
from engine.sglang.ring import Ring
from engine.sglang.sink import Format, Sink, free_place
from engine.step import VerifyStep
from engine.trace import TraceFormatError, TraceHeader, open_trace
from tests.factories import example_step
from tests.sglang.raw_steps import packed, worked_raw
from tests.sglang.worked import ints

PATIENCE = 30.0


@pytest.mark.parametrize("form", ["jsonl", "arrow"])
def test_a_killed_process_loses_no_complete_step(tmp_path: Path, form: str) -> None:
    child = subprocess.Popen([sys.executable, "-m", "tests.sglang.child", str(tmp_path), form])
    try:
        before = wait_for_steps(tmp_path, 20)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    part = next(p for p in tmp_path.glob("rank0.00000.*") if "header" not in p.name)
    if form == "jsonl":
        cut_half_line(part)
    steps = list(open_trace(part))
    assert len(steps) >= before
    numbers = [step.step for step in steps]
    assert numbers == sorted(set(numbers))
    assert steps[-1].outcome.bonus_tokens.tolist() == [44]


def test_a_process_that_ends_writes_what_is_waiting(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sglang.child", str(tmp_path), "arrow", "40"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [step.step for step in open_trace(tmp_path)] == list(range(40))


def wait_for_steps(folder: Path, count: int) -> int:
    """Complete steps that a reader has seen, once there are so many."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(TraceFormatError, FileNotFoundError):  # a line half written
            found = len(list(open_trace(folder)))
            if found >= count:
                return found
        time.sleep(0.05)
    raise AssertionError("the child wrote nothing")


def cut_half_line(part: Path) -> None:
    """A line that the kill broke off is no complete step."""
    data = part.read_bytes()
    part.write_bytes(data[: data.rfind(b"\n") + 1])


def test_a_full_ring_drops_the_new_step_and_counts() -> None:
    ring = Ring(max_steps=2)
    assert [ring.put(packed(n)) for n in range(4)] == [True, True, False, False]
    assert ring.dropped == 2
    assert [step.number for step in ring.take()] == [0]
    assert [step.number for step in ring.take(5)] == [1]
    assert ring.take() == []
    assert ring.put(packed(9))


def test_a_ring_is_bounded_in_bytes() -> None:
    size = worked_raw(0).bytes
    ring = Ring(max_bytes=2 * size)
    assert [ring.put(packed(n)) for n in range(3)] == [True, True, False]


class FullDisk:
    """A sink whose disk takes ``room`` steps."""

    path, removed = None, 0

    def __init__(self, room: int):
        self.room, self.steps = room, []

    def write(self, step: VerifyStep) -> None:
        if len(self.steps) >= self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.steps.append(step)

    def close(self) -> None:
        pass


def recorded(folder: Path, sink: FullDisk, count: int, control: str = "{}") -> Recorder:
    recorder = Recorder(sink, Origin(), folder, {})
    recorder.renew(Report(control_from(json.loads(control), "control")))
    for number in range(count):
        recorder.handle(worked_raw(number, broken=number == 3))
    recorder.close("over")
    return recorder


def test_a_full_disk_stops_the_recording_alone(tmp_path: Path) -> None:
    sink = FullDisk(room=2)
    health = recorded(tmp_path, sink, 5).health()
    assert len(sink.steps) == 2
    assert health["state"] == "stopped: the disk takes no more"
    assert "No space left" in health["last_error"]
    assert health["steps"]["written"] == 2


def test_only_failures_with_what_came_before(tmp_path: Path) -> None:
    sink = FullDisk(room=100)
    control = '{"only_failures": true, "keep_before_failure": 2}'
    health = recorded(tmp_path, sink, 6, control).health()
    assert [step.step for step in sink.steps] == [1, 2, 3]
    assert health["steps"]["with_fault"] == 1
    assert health["steps"]["held_back"] == 1


def test_a_step_that_cannot_be_a_record_is_counted(tmp_path: Path) -> None:
    sink = FullDisk(room=100)
    recorder = Recorder(sink, Origin(), tmp_path, {})
    recorder.handle(worked_raw(0, without="draft_token"))
    recorder.handle(worked_raw(1))
    assert [step.step for step in sink.steps] == [1]
    assert recorder.counts.not_assembled == 1
    assert "draft_token: expected 4 entries, found none" in recorder.counts.last_error


@pytest.mark.parametrize("form", list(Format))
def test_parts_are_bounded_and_the_oldest_goes(tmp_path: Path, form: Format) -> None:
    sink = Sink(tmp_path, "rank0", TraceHeader(), form, part_bytes=1, total_bytes=100_000)
    for number in range(4):
        sink.write(replace(example_step(), step=number))
    sink.close()
    assert sink.removed == 0
    assert len(open_trace(tmp_path)) == 4
    sink._total_bytes = 1
    sink.write(example_step())
    sink.close()
    assert sink.removed == 4
    assert len(open_trace(tmp_path)) == 1


def test_a_server_that_starts_again_does_not_mix_with_what_is_there(tmp_path: Path) -> None:
    assert free_place(tmp_path, "rank0") == tmp_path
    (tmp_path / "rank0.00000.jsonl").touch()
    assert free_place(tmp_path, "rank1") == tmp_path
    assert free_place(tmp_path, "rank0") == tmp_path / "again1"
    (tmp_path / "again1").mkdir()
    (tmp_path / "again1" / "rank0.00000.ddtree.arrow").touch()
    assert free_place(tmp_path, "rank0") == tmp_path / "again2"


def test_what_control_wants() -> None:
    assert [Control(first=4, every=2).wants(n) for n in range(6)] == [1, 0, 1, 0, 0, 0]
    assert not Control(record=False).wants(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected an object, found list"),
        ('{"evry": 1}', "expected one of record, first, every"),
        ('{"every": 0}', "every: expected 1 …"),
        ('{"record": 1}', "record: expected true or false, found 1"),
        ("{", "expected JSON"),
        ("[" * 10_000, "expected JSON"),
    ],
)
def test_a_control_file_that_is_wrong_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "control.json").write_text(text)
    with pytest.raises(ControlError, match=r"control\.json") as caught:
        read_control(tmp_path)
    assert message in str(caught.value)


def test_control_as_it_should_be() -> None:
    assert control_from({"first": None, "check": True}, "x") == Control(check=True)


def recorder_of(folder: Path) -> Recorder:
    return Recorder(Sink(folder, "rank0", TraceHeader(), Format.JSONL), Origin(), folder, {})


@pytest.mark.parametrize(
    "ends", ["the next step", "another step", "another request's", "reports", "the end"]
)
def test_a_step_waits_for_the_next_one_and_for_nothing_else(tmp_path: Path, ends: str) -> None:
    recorder = recorder_of(tmp_path)
    own = replace(
        worked_raw(3), ends=Ends(((12, 30, 44),), (False,), ()), next_tells=("committed_lens",)
    )
    recorder.handle(own)
    for _ in range(recorder_module.PATIENCE):
        recorder.renew(Report(Control()))
        assert recorder.counts.written == 0
    if ends == "the next step":
        recorder.handle(replace(worked_raw(4, prefix_lens=ints(5)), rids=own.rids))
    elif ends == "another step":
        recorder.handle(replace(worked_raw(5, prefix_lens=ints(5)), rids=own.rids))
    elif ends == "another request's":
        recorder.handle(worked_raw(4, prefix_lens=ints(5)))
    elif ends == "reports":
        recorder.renew(Report(Control()))
    else:
        recorder.close("over")
    assert recorder.counts.written == (1 if ends in ("reports", "the end") else 2)
    recorder.close("over")
    found = next(iter(open_trace(tmp_path))).commit.seq_lens
    assert (None if found is None else found.tolist()) == ([5] if ends == "the next step" else None)


def test_paces_are_those_since_turns_have_this_length(tmp_path: Path) -> None:
    recorder = recorder_of(tmp_path)
    for alternate, seconds in ((4, 0.1), (4, 0.2), (0, 0.3), (0, 0.4)):
        recorder.renew(Report(Control(alternate=alternate), paces=[Paced(1, "away", seconds)]))
        if (alternate, seconds) == (4, 0.2):
            assert (
                recorder.health()["step_us"]["1"]["away"]["us"] == 200_000
            )  # 0.1: of no turns yet
    assert recorder.health()["step_us"]["1"]["away"] == {
        "us": 400_000, "mean_us": 400_000, "steps": 1,
    }  # fmt: skip


def test_names_that_are_no_text_are_told_all_the_same(tmp_path: Path) -> None:
    recorder = recorder_of(tmp_path)
    recorder.counts.last_error = "/traces/\udcff: no space"
    recorder.renew()
    found = json.loads((tmp_path / "health.rank0.json").read_text())
    assert found["last_error"] == "/traces/\udcff: no space"
