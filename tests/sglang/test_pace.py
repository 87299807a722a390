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
    one, other, two = (1,), (2,), (1, 2)
    for seconds, requests, kind in (
        (0.0, one, "recorded"),
        (0.004, one, "recorded"),  # counts
        (0.005, one, "recorded"),  # counts
        (0.005, one, "resting"),  # the step before it was recorded: neither kind
        (0.003, one, "resting"),  # counts
        (0.009, other, "resting"),  # its prompt came first
        (0.003, two, "resting"),
        (0.7, two, "resting"),  # counts
        (PAUSE + 1, two, "resting"),  # something else
        (0.006, two, "resting"),  # counts
        (0.006, two, "away"),
        (0.002, two, "away"),  # counts
    ):
        clock.now += seconds
        pace.step(requests, kind)
    found = pace.take()
    assert [(p.requests, p.kind, round(p.seconds, 6)) for p in found] == [
        (1, "recorded", 0.004),
        (1, "recorded", 0.005),
        (1, "resting", 0.003),
        (2, "resting", 0.7),
        (2, "resting", 0.006),
        (2, "away", 0.002),
    ]
    assert pace.take() == []


def test_medians_and_means_by_requests_and_ratios_to_steps_without_hooks() -> None:
    paces = Paces()
    paces.add([Paced(8, "recorded", 0.0103), Paced(1, "recorded", 0.0051)])
    paces.add([Paced(1, "away", 0.005), Paced(1, "recorded", 0.0041), Paced(1, "recorded", 0.0085)])
    paces.add([Paced(1, "resting", 0.00505)])
    assert paces.found() == {
        "1": {
            "recorded": {"us": 5100.0, "mean_us": 5900.0, "steps": 3},
            "resting": {"us": 5050.0, "mean_us": 5050.0, "steps": 1},
            "away": {"us": 5000.0, "mean_us": 5000.0, "steps": 1},
            "ratio": {"recorded": 1.02, "resting": 1.01},
            "mean_ratio": {"recorded": 1.18, "resting": 1.01},
        },
        "8": {"recorded": {"us": 10300.0, "mean_us": 10300.0, "steps": 1}},
    }


def test_recording_in_turns(tmp_path: Path) -> None:
    control = Control(alternate=3)
    numbers = range(20)
    assert [n for n in numbers if control.wants(n)] == [0, 1, 2, 9, 10, 11, 18, 19]
    assert [n for n in numbers if control.away(n)] == [6, 7, 8, 15, 16, 17]
    assert all(Control().wants(n) and not Control().away(n) for n in numbers)
    (tmp_path / "control.json").write_text('{"alternate": -1}')
    with pytest.raises(ControlError, match="alternate: expected 0 …"):
        read_control(tmp_path)


def test_the_health_file_tells_what_recording_costs(tmp_path: Path) -> None:
    (tmp_path / "control.json").write_text('{"alternate": 4}')
    with double.installed() as hook_on:
        server = Server(tmp_path, attach(tmp_path, hook_on, {}))
        lasts = {0: 0.009, 1: 0.005, 2: 0.002}
        try:
            batch = worked.batch()
            own = batch.reqs
            for _ in range(60):
                batch = worked.batch()
                batch.reqs = own
                server.run_eager(worked.verify_input(), batch)
                time.sleep(lasts[server.tap.counts.seen // 4 % 3])
        finally:
            assert server.tap.stop is not None
            server.tap.stop()
    found = json.loads((tmp_path / "health.rank0.json").read_text())
    assert (found["steps"]["written"], found["steps"]["seen"]) == (20, 60)
    told = found["step_us"]["1"]
    for kind, least in (("recorded", 9000), ("resting", 5000), ("away", 2000)):
        # four in turn, three between them; a busy machine may lose some
        assert 10 <= told[kind]["steps"] <= 15
        assert told[kind]["us"] > least
    assert told["ratio"]["recorded"] > told["ratio"]["resting"] > 1
