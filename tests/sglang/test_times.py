"""Clocks around the stages of a step: what is counted, what is not, and what an exception leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.sglang.times import APPEND, DFLASH, EVERY, STAGES, STEP, Times, watch
from tests.sglang.wheel_source import parameters
from tests.sglang_wheels import sglang_folder


class Clock:
    """Moves when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Event:
    """On a device that is twice as fast as the host's clock."""

    def __init__(self, clock: Clock):
        self.clock = clock

    def record(self) -> None:
        self.at = self.clock.now / 2

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: Event) -> float:
        return 1e3 * (later.at - self.at)


def mode(name: str) -> Any:
    return SimpleNamespace(
        forward_mode=SimpleNamespace(
            is_extend=lambda: name == "extend", is_idle=lambda: name == "idle"
        )
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def times(tmp_path: Path, clock: Clock) -> Times:
    return Times(tmp_path / "times.json", lambda: Event(clock), clock)


def takes(
    clock: Clock, seconds: float, inner: Callable[[], Any] = lambda: None
) -> Callable[..., str]:
    def run(*args: Any, **kwargs: Any) -> str:
        clock.now += seconds
        inner()
        return "done"

    return run


def test_a_step_with_its_stages(times: Times, clock: Clock, tmp_path: Path) -> None:
    def stages() -> None:
        times.stage("draft")(takes(clock, 3e-3))
        times.stage("target")(takes(clock, 1e-3))

    for _ in range(EVERY):
        assert times.step(takes(clock, 1e-3, stages), "worker", mode("decode")) == "done"
        clock.now += 4e-3
    found = json.loads((tmp_path / "times.json").read_text())
    assert found["steps"] == EVERY
    host = {name: own["host_us"] for name, own in found["stages"].items()}
    assert host == pytest.approx(
        {"step": 5000, "draft": 3000, "target": 1000, "between steps": 4000}
    )
    assert found["stages"]["draft"]["device_us"] == pytest.approx(1500)
    assert found["stages"]["between steps"]["device_us"] is None


def test_prompts_and_idle_steps_are_not_counted(times: Times, clock: Clock) -> None:
    for name in ("extend", "idle"):
        times.step(takes(clock, 1, lambda: times.stage("target")(takes(clock, 1))), "w", mode(name))
    times.step(takes(clock, 2), "worker", mode("decode"))
    clock.now += 1
    times.step(takes(clock, 9), "worker", mode("extend"))  # nor is the time until a step after them
    times.step(takes(clock, 2), "worker", mode("decode"))
    assert {name: list(own) for name, own in times.host.items()} == {"step": [2, 2]}


def test_a_stage_that_ends_with_an_exception_is_counted_and_passes_it_on(
    times: Times, clock: Clock
) -> None:
    def breaks(*args: Any) -> None:
        clock.now += 2
        raise KeyError("drafted")

    def step(*args: Any) -> None:
        with pytest.raises(KeyError):
            times.stage("draft")(breaks)

    times.step(step, "worker", mode("decode"))
    assert list(times.host["draft"]) == [2]
    with pytest.raises(KeyError):
        times.step(breaks, "worker", mode("decode"))
    assert not times.inside


def test_the_drafters_cache_is_counted_where_it_has_something_to_append(
    times: Times, clock: Clock
) -> None:
    def step(*args: Any) -> None:
        for rows, seconds in (([], 3), ([[1.0]], 2), (None, 5)):
            own = SimpleNamespace(target_hidden=rows)
            assert times.append(takes(clock, seconds), "worker", "batch", own) == "done"

    times.step(step, "worker", mode("decode"))
    assert list(times.host["drafter's cache"]) == [2]


def test_a_folder_that_takes_no_file_costs_nothing_else(tmp_path: Path, clock: Clock) -> None:
    times = Times(tmp_path / "none" / "times.json", None, clock)
    for _ in range(EVERY):
        times.step(takes(clock, 1), "worker", mode("decode"))
    assert times.steps == EVERY


def test_every_place_is_one_of_sglang_or_ours(tmp_path: Path) -> None:
    folder = sglang_folder("0.5.12")
    places: dict[str, Any] = {}
    watch(places.__setitem__, {"DDTREE_TIMES": str(tmp_path / "times.json")})
    assert set(places) == {STEP, APPEND, *STAGES.values()}
    for path in places:
        if path.startswith("sglang."):
            assert parameters(folder, path), path
        else:
            module, name = path.rsplit(".", 1)
            assert callable(getattr(__import__(module, fromlist=[name]), name))
    assert parameters(folder, STEP)[:2] == ("self", "batch")
    assert parameters(folder, APPEND) == ("self", "batch", "draft_input")
    assert DFLASH in STEP
