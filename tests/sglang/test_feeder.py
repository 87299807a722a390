"""The thread in the server and the writer's process: what is passed on, and what the loss of either does."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.sglang.assemble import Origin
from engine.sglang.control import Control
from engine.sglang.feeder import LOST, Feeder
from engine.sglang.parcel import Parcel
from engine.sglang.raw import RawStep
from engine.sglang.sink import Format
from engine.sglang.tap import Tap
from engine.sglang.writer import ENDED, Opening
from engine.trace import TraceHeader, open_trace
from tests.sglang.raw_steps import packed, worked_raw

PATIENCE = 20.0


@pytest.fixture
def tap(tmp_path: Path) -> Iterator[Tap]:
    tap = Tap()
    yield tap
    if tap.stop is not None:
        tap.stop()


def started(tap: Tap, folder: Path, group: str = "") -> Feeder:
    origin = Origin(version="1", rank=2, world_size=4, group=group)
    opening = Opening(
        folder, "rank2", TraceHeader(), Format.JSONL, 1 << 20, origin, folder, {"process": 5}
    )
    feeder = Feeder(tap, opening)
    feeder.start()
    tap.stop = feeder.stop
    return feeder


def health(folder: Path, name: str = "health.rank2.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def test_steps_arrive_in_order_and_the_counts_of_both_sides_are_told(
    tap: Tap, tmp_path: Path
) -> None:
    feeder = started(tap, tmp_path, group="dp1")
    tap.counts.seen, tap.counts.errors, tap.ring.dropped = 9, 2, 3
    for number in range(300):
        assert tap.ring.put(packed(number))
    feeder.stop()
    assert [step.step for step in open_trace(tmp_path)] == list(range(300))
    found = health(tmp_path, "health.dp1-rank2.json")
    assert (found["state"], found["process"]) == (ENDED, 5)
    assert found["writer"] not in (os.getpid(), None)
    assert (found["steps"]["seen"], found["steps"]["written"]) == (9, 300)
    assert (found["steps"]["dropped"], found["hook_errors"]) == (3, 2)
    assert found["gathering"] == "by the kernel"


def test_the_control_file_reaches_the_hooks_and_the_writer(tap: Tap, tmp_path: Path) -> None:
    (tmp_path / "control.json").write_text('{"only_failures": true, "every": 3}')
    started(tap, tmp_path)
    assert tap.control == Control(only_failures=True, every=3)
    for number in range(5):
        tap.ring.put(packed(number, broken=number == 3))
    wait_until(lambda: (tmp_path / "health.rank2.json").exists())
    wait_until(lambda: health(tmp_path)["steps"]["with_fault"] == 1)
    assert [step.step for step in open_trace(tmp_path)] == [3]
    (tmp_path / "control.json").write_text('{"evry": 3}')
    wait_until(lambda: "found 'evry'" in (health(tmp_path)["control_problem"] or ""))
    assert tap.control.every == 3


def test_a_writer_that_is_killed_stops_the_recording_and_says_so(tap: Tap, tmp_path: Path) -> None:
    started(tap, tmp_path)
    tap.ring.put(packed(0))
    wait_until(lambda: (tmp_path / "health.rank2.json").exists())
    wait_until(lambda: any(p.stat().st_size for p in tmp_path.glob("rank2.*.jsonl")))
    os.kill(health(tmp_path)["writer"], signal.SIGKILL)
    wait_until(lambda: health(tmp_path)["state"].startswith(LOST))
    for number in range(1, 50):
        tap.ring.put(packed(number))
    wait_until(lambda: not len(tap.ring))  # still emptied
    assert [step.step for step in open_trace(tmp_path)] == [0]


def test_a_step_whose_copies_fail_is_dropped_alone(tap: Tap, tmp_path: Path) -> None:
    class Failed:
        class event:
            @staticmethod
            def query() -> bool:
                return False

            @staticmethod
            def synchronize() -> None:
                raise RuntimeError("CUDA error: an illegal memory access")

    feeder = started(tap, tmp_path)
    steps = [packed(number) for number in range(3)]
    steps[1].arriving.append(Failed())
    for step in steps:
        tap.ring.put(step)
    feeder.stop()
    assert [step.step for step in open_trace(tmp_path)] == [0, 2]
    found = health(tmp_path)
    assert found["steps"]["dropped"] == 1
    assert "illegal memory access" in found["last_error"]


def test_what_a_copy_needed_is_let_go_once_it_has_arrived() -> None:
    class Arrived:
        class event:
            @staticmethod
            def query() -> bool:
                return True

    parcel, kept = packed(0), Arrived()
    parcel.arriving.append(kept)
    alive = weakref.ref(kept)
    del kept
    assert alive() is not None
    parcel.wait()
    assert alive() is None


def test_a_step_that_cannot_be_sent_does_not_end_the_thread(tap: Tap, tmp_path: Path) -> None:
    feeder = started(tap, tmp_path)
    unsound: Any = Lying(0, rids=(lambda: None,))
    tap.unmade.append(unsound)
    wait_until(lambda: not tap.unmade and tap.counts.last_error is not None)
    tap.ring.put(packed(1))
    feeder.stop()
    assert [step.step for step in open_trace(tmp_path)] == [1]
    assert "pickle" in health(tmp_path)["last_error"]


class Lying:
    """A step whose copies are under way, and who put it together."""

    def __init__(self, number: int, **others: Any) -> None:
        self.number, self.others, self.makers = number, others, list[str]()

    def made(self, batch: Any = None, recorded: bool = False) -> RawStep:
        self.makers.append(threading.current_thread().name)
        return replace(worked_raw(self.number), **self.others)


def test_the_last_step_before_a_pause_is_put_together_by_the_feeder(
    tap: Tap, tmp_path: Path
) -> None:
    started(tap, tmp_path)
    tap.ring.put(packed(0))
    last: Any = Lying(1)
    tap.unmade.append(last)
    wait_until(lambda: last.makers == ["ddtree-tap"])
    wait_until(lambda: any(p.stat().st_size for p in tmp_path.glob("rank2.*.jsonl")))
    wait_until(lambda: [step.step for step in open_trace(tmp_path)] == [0, 1])


def test_while_steps_come_the_server_puts_them_together_in_order(tap: Tap, tmp_path: Path) -> None:
    feeder = started(tap, tmp_path)
    lying: list[Any] = [Lying(number) for number in range(60)]
    for each in lying:
        tap.make()
        tap.unmade.append(each)
        time.sleep(0.005)
    feeder.stop()
    assert [step.step for step in open_trace(tmp_path)] == list(range(60))
    makers = [each.makers for each in lying]
    assert all(len(each) == 1 for each in makers)
    assert makers[-1] == ["ddtree-tap"]
    assert sum(each == ["MainThread"] for each in makers) > 40


def test_a_slow_server_puts_its_own_steps_together(tap: Tap, tmp_path: Path) -> None:
    """What a step committed is known only to whom the next one is: the feeder does not come before a slow one."""
    feeder = started(tap, tmp_path)
    lying: list[Any] = [Lying(number) for number in range(4)]
    for each in lying:
        tap.make()
        tap.unmade.append(each)
        time.sleep(0.4)
    assert [each.makers for each in lying] == [["MainThread"]] * 3 + [[]]
    feeder.stop()
    assert lying[-1].makers == ["ddtree-tap"]


def test_what_the_feeder_is_at_is_left_to_it(tap: Tap) -> None:
    step: Any = Lying(0)
    tap.unmade.append(step)
    with tap.making:
        tap.make()  # returns at once
    assert not step.makers
    tap.make()
    assert len(step.makers) == len(tap.ring) == 1


def test_while_the_writer_keeps_the_feeder_waiting_the_server_puts_steps_together(
    tap: Tap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that are not put together hold tensors of the server's."""
    feeder = started(tap, tmp_path)
    waits, over, send = threading.Event(), threading.Event(), feeder._send

    def slow(*messages: Any) -> None:
        if any(isinstance(message, Parcel) for message in messages):
            waits.set()
            assert over.wait(PATIENCE)
        send(*messages)

    monkeypatch.setattr(feeder, "_send", slow)
    lying: list[Any] = [Lying(number) for number in range(20)]
    tap.unmade.append(lying[0])
    assert waits.wait(PATIENCE)
    for each in lying[1:]:
        tap.make()
        tap.unmade.append(each)
    assert len(tap.unmade) == 1
    over.set()
    feeder.stop()
    assert [step.step for step in open_trace(tmp_path)] == list(range(20))


def test_at_the_end_all_that_lies_is_passed_on(tap: Tap, tmp_path: Path) -> None:
    feeder = started(tap, tmp_path)
    with tap.making:  # the feeder was at one when the next began
        lying: list[Any] = [Lying(number) for number in range(3)]
        tap.unmade.extend(lying)
        feeder._ending.set()
    feeder.stop()
    assert [step.step for step in open_trace(tmp_path)] == [0, 1, 2]
