"""How long steps take while they are recorded and while they are not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from engine.sglang.attach import attach
from engine.sglang.control import Control, ControlError, read_control
from engine.sglang.pace import PAUSE, Pace, Paced, Paces
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.serving import Server


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_steps_of_one_kind_are_timed_and_those_after_a_change_are_not() -> None:
    clock = Clock()
    pace = Pace(clock)
    for seconds, requests, recorded in (
        (0.0, 1, True),
        (0.004, 1, True),  # counts
        (0.005, 1, True),  # counts
        (0.005, 1, False),  # the step before it was recorded: neither kind
        (0.003, 1, False),  # counts
        (0.003, 2, False),
        (0.007, 2, False),  # counts
        (PAUSE, 2, False),  # nobody asked
        (0.006, 2, False),  # counts
    ):
        clock.now += seconds
        pace.step(requests, recorded)
    found = pace.take()
    assert [(p.requests, p.recorded, round(p.seconds, 6)) for p in found] == [
        (1, True, 0.004),
        (1, True, 0.005),
        (1, False, 0.003),
        (2, False, 0.007),
        (2, False, 0.006),
    ]
    assert pace.take() == []


def test_medians_by_requests_and_a_ratio_where_both_are_known() -> None:
    paces = Paces()
    paces.add([Paced(8, True, 0.0103), Paced(1, True, 0.0051), Paced(1, True, 0.009)])
    paces.add([Paced(1, False, 0.005), Paced(1, True, 0.0041)])
    assert paces.found() == {
        "1": {
            "resting": {"us": 5000.0, "steps": 1},
            "recorded": {"us": 5100.0, "steps": 3},
            "ratio": 1.02,
        },
        "8": {"recorded": {"us": 10300.0, "steps": 1}},
    }


def test_recording_in_turns(tmp_path: Path) -> None:
    control = Control(alternate=3)
    assert [control.wants(number) for number in range(13)] == [True] * 3 + [False] * 3 + [
        True
    ] * 3 + [False] * 3 + [True]
    assert all(Control().wants(number) for number in range(9))
    (tmp_path / "control.json").write_text('{"alternate": -1}')
    with pytest.raises(ControlError, match="alternate: expected 0 …"):
        read_control(tmp_path)


def test_the_health_file_tells_what_recording_costs(tmp_path: Path) -> None:
    (tmp_path / "control.json").write_text('{"alternate": 4}')
    with double.installed() as hook_on:
        server = Server(tmp_path, attach(tmp_path, hook_on, {}))
        try:
            for _ in range(40):
                server.run_eager(worked.verify_input(), worked.batch())
                time.sleep(0.002 if server.tap.counts.seen // 4 % 2 else 0.006)
        finally:
            assert server.tap.stop is not None
            server.tap.stop()
    found = json.loads((tmp_path / "health.rank0.json").read_text())
    assert found["steps"]["written"] == 20
    told = found["step_us"]["1"]
    assert min(told["recorded"]["steps"], told["resting"]["steps"]) >= 10
    assert (
        max(told["recorded"]["steps"], told["resting"]["steps"]) <= 15
    )  # four in turn, three between them
    assert (told["recorded"]["us"] > 6000, told["resting"]["us"] > 2000) == (True, True)
    assert told["ratio"] > 1
