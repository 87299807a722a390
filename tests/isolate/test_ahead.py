"""Servers that load while another is asked: which, how many, on which ports, with what results."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.lab import Done, run_lab
from engine.isolate.served import ServedMeasure
from engine.isolate.store import Store
from engine.isolate.subject import Report
from tests.isolate.serving import (
    LONG,
    alive,
    announced,
    diary,
    matrix,
    measure,
    most_alive,
    quiet,
    starts,
    subject,
    until,
)

BUDGETS = (7, 16, 24, 32)
PLAN = ["plain", "7", "16", "24", "32"]


def ports_of(folder: Path) -> set[int]:
    return {line["port"] for line in diary(folder) if "start" in line}


def port_of(on: ServerSubject) -> int:
    return int(on.url.rpartition(":")[2])


def asked(folder: Path) -> list[str]:
    """Names of servers, in the order in which they were asked."""
    return list(dict.fromkeys(line["name"] for line in diary(folder) if "rid" in line))


def at_each_first_time(folder: Path, seen: list[list[str]]) -> Report:
    """What has been started when each server is asked, once nothing more comes."""

    def report(words: str, _share: float) -> None:
        if words.startswith("plain decoding") or words == "first time":
            names = asked(folder)
            if len(seen) < len(names):
                until(lambda: len(starts(folder)) >= min(len(PLAN), len(names) + 1))
                time.sleep(0.3)
                seen.append(starts(folder))

    return report


def test_the_next_two_load_while_one_is_asked(tmp_path: Path) -> None:
    on = subject(tmp_path, ahead=2)
    seen: list[list[str]] = []
    tried = matrix(budgets=BUDGETS, batches=(1, 2))
    results = announced(tmp_path, tried, on, at_each_first_time(tmp_path, seen))
    assert [result.error for result in results] == [None] * 8
    assert asked(tmp_path) == PLAN
    # Those that are started together may come to write it down in any order; the fourth waits for the first's address.
    assert set(seen[0]) == set(PLAN[:3])
    assert set(PLAN[:3]) <= set(seen[1]) <= set(PLAN[:4])
    assert set(PLAN[:4]) <= set(seen[2])
    assert [set(names) for names in seen[3:]] == [set(PLAN)] * 2
    assert [len(names) for names in seen] == [len(set(names)) for names in seen]
    assert most_alive(tmp_path) == 3
    assert ports_of(tmp_path) == {port_of(on) + number for number in range(3)}


def test_without_any_ahead_each_is_started_when_it_is_needed(tmp_path: Path) -> None:
    on = subject(tmp_path)
    announced(tmp_path, matrix(budgets=BUDGETS), on)
    assert starts(tmp_path) == asked(tmp_path) == PLAN
    assert most_alive(tmp_path) == 1
    assert ports_of(tmp_path) == {port_of(on)}


def test_more_ahead_than_there_are(tmp_path: Path) -> None:
    announced(tmp_path, matrix(budgets=(7, 16)), subject(tmp_path, ahead=9))
    assert sorted(starts(tmp_path)) == ["16", "7", "plain"]
    assert most_alive(tmp_path) <= 3


def test_nothing_is_started_for_cells_that_nobody_announced(tmp_path: Path) -> None:
    tried = matrix(budgets=(7, 16))
    served = measure(tmp_path, tried, subject(tmp_path, ahead=2), grace=LONG)
    try:
        assert served.measure(list(tried)[1], quiet).error is None
    finally:
        served.close()
    assert starts(tmp_path) == ["plain", "16"]


def test_cells_in_any_order_and_a_server_that_is_needed_again(tmp_path: Path) -> None:
    """It is kept while it is among the next."""
    tried = matrix(budgets=(7, 16), used_prompts=(0, 1))
    first, second, other, _ = tried
    served = measure(tmp_path, tried, subject(tmp_path, ahead=1), grace=LONG)
    served.expect([first, other, second])
    try:
        results = [served.measure(cell, quiet) for cell in (first, other, second)]
    finally:
        served.close()
    assert [result.error for result in results] == [None] * 3
    assert sorted(starts(tmp_path)) == ["16", "7", "plain"]
    assert most_alive(tmp_path) <= 2


@pytest.mark.parametrize(
    ("who", "behaviour"),
    [
        ("", {"faulty": True, "tap": "{traces}"}),
        ("16", {"crash": True}),
        ("24", {"die": "first"}),
        ("plain", {"crash": True}),
        ("7", {"random": True}),
    ],
)
def test_results_are_those_of_one_at_a_time(
    tmp_path: Path, who: str, behaviour: dict[str, object]
) -> None:
    tried = matrix(budgets=(7, 16, 24), used_prompts=(0, 1))
    found = []
    for ahead in (0, 2):
        folder = tmp_path / f"{ahead}"
        folder.mkdir()
        on = subject(folder, ahead=ahead, only=who, **behaviour)
        found.append((announced(folder, tried, on), asked(folder), sorted(starts(folder))))
        assert most_alive(folder) <= ahead + 1
    assert found[0][0] == [
        replace(one, sentence=one.sentence and one.sentence.replace("/2/", "/0/"))
        for one in found[1][0]
    ]
    assert found[0][1] == found[1][1]
    if who != "plain":
        assert found[0][2] == found[1][2]


def _lab(store: Store, stop_after: int) -> list[str]:
    def make(experiment: Experiment, traces: Path) -> ServedMeasure:
        assert isinstance(experiment.subject, ServerSubject)
        return ServedMeasure(experiment.matrix, experiment.subject, traces, grace=LONG)

    done: list[str] = []
    events = run_lab(store, quiet, make=make)
    for event in events:
        if isinstance(event, Done):
            done.append(event.measured.cell.key)
            if len(done) == stop_after:
                break
    events.close()
    return done


def test_servers_whose_cells_are_measured_are_not_started_again(tmp_path: Path) -> None:
    on = subject(tmp_path, ahead=2)
    folder = tmp_path / "lab"
    _lab(Store.create(folder, Experiment(matrix(budgets=BUDGETS), on)), 2)
    assert alive(tmp_path) == []
    before = starts(tmp_path)
    assert {"plain", "7", "16"} <= set(before) <= set(PLAN)
    again = Store.open(folder)
    again.forget(next(iter(again.experiment.matrix)))
    assert _lab(again, 9) == [f"b{budget}-k1-graphs-n1-p0" for budget in (7, 24, 32)]
    assert sorted(starts(tmp_path)[len(before) :]) == sorted(["7", "24", "32"])
    assert most_alive(tmp_path) <= 3
    assert again.left == []


def _listening(port: int) -> socket.socket:
    other = socket.socket()
    other.bind(("127.0.0.1", port))
    other.listen()
    return other


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    on = subject(tmp_path, ahead=1)
    with _listening(port_of(on) + 1):
        results = announced(tmp_path, matrix(budgets=(7, 16)), on)
    assert [result.error for result in results] == [None, None]
    assert starts(tmp_path) == ["plain", "7", "16"]
    assert ports_of(tmp_path) == {port_of(on)}


def test_no_port_at_all(tmp_path: Path) -> None:
    on = subject(tmp_path, ahead=1)
    with _listening(port_of(on)), _listening(port_of(on) + 1):
        (result,) = announced(tmp_path, matrix(), on)
    assert "expected a free port, found a server that listens there already" in (result.error or "")
    assert starts(tmp_path) == []


def test_a_command_that_is_not_there_is_told_in_its_turn(tmp_path: Path) -> None:
    on = replace(subject(tmp_path, ahead=1), command=("no-such-server", "{budget}", "{port}"))
    results = announced(tmp_path, matrix(budgets=(7, 16)), on)
    assert {result.error for result in results} == {
        "no-such-server: cannot be started: No such file or directory: no-such-server"
    }
    assert starts(tmp_path) == ["plain"]
