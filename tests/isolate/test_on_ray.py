"""The same experiments on a Ray of this machine, with workers that are really started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.isolate.experiment import Experiment, LocalSubject, ServerSubject
from engine.isolate.lab import Done, Started, run_lab
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.on_ray import run_on_ray
from engine.isolate.ray_cluster import ClusterError, installed_ray, require_head, slots
from engine.isolate.ray_worker import here
from engine.isolate.store import Store
from engine.isolate.subject import Report
from tests.isolate.serving import alive, matrix, processes, quiet, starts, subject
from tests.tiny_folder import tiny_folder


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    pytest.importorskip("ray")
    found = installed_ray()
    found.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 << 20,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield found
    found.shutdown()


def lab(folder: Path, tried: Matrix, **behaviour: Any) -> Store:
    return Store.create(folder / "lab", Experiment(tried, subject(folder, **behaviour)))


def without_times(results: list[Measured]) -> list[Measured]:
    return [
        replace(result, seconds=0.0, tokens_per_s=None, plain_tokens_per_s=None)
        for result in results
    ]


def in_order(store: Store) -> list[Measured]:
    return without_times([store.results[cell] for cell in store.experiment.matrix])


def test_results_equal_those_of_one_machine_and_traces_come_back(ray: Any, tmp_path: Path) -> None:
    tried = matrix(budgets=(7, 16), batches=(1, 2))
    told = {"faulty": True, "tap": "{traces}"}
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    local, spread = lab(here, tried, **told), lab(there, tried, **told)
    list(run_lab(local, quiet))
    events = list(run_on_ray(spread, quiet))
    assert in_order(spread) == in_order(local)
    assert in_order(Store.open(spread.folder)) == in_order(local)
    assert sorted(starts(there)) == ["16", "7", "plain"]
    assert alive(there) == []
    recordings = {result.trace for result in in_order(spread)}
    names = {path.name for path in spread.traces.iterdir()}
    assert recordings | {"plain.log", "b7-k1-graphs.log", "b16-k1-graphs.log"} == names
    for name in recordings:
        assert (spread.traces / str(name)).stat().st_size == (
            local.traces / str(name)
        ).stat().st_size
    begun = [event.cell for event in events if isinstance(event, Started)]
    assert sorted(begun) == sorted(tried)
    assert [event.number for event in events if isinstance(event, Started)] == [0, 1, 2, 3]
    assert all(isinstance(event, Started | Done) for event in events)


def test_the_local_engine_measures_the_same_on_a_worker(ray: Any, tmp_path: Path) -> None:
    what = LocalSubject(str(tiny_folder(tmp_path / "model")), "oracle", fault="verify-width")
    experiment = Experiment(matrix(budgets=(7, 16)), what)
    here = Store.create(tmp_path / "here", experiment)
    there = Store.create(tmp_path / "there", experiment)
    list(run_lab(here, quiet))
    list(run_on_ray(there, quiet, num_cpus=2))  # one worker for both cells
    assert in_order(there) == in_order(here)
    assert [bool(result.findings) for result in in_order(there)] == [False, True]
    names = {path.name for path in here.traces.iterdir()}
    assert {path.name for path in there.traces.iterdir()} == names


def test_a_stop_leaves_nothing_and_the_rest_is_measured_later(ray: Any, tmp_path: Path) -> None:
    store = lab(tmp_path, matrix(budgets=(7, 16), batches=(1, 2)))
    events = run_on_ray(store, quiet)
    for event in events:
        if isinstance(event, Done):
            break
    events.close()  # type: ignore[attr-defined]
    assert alive(tmp_path) == []
    again = Store.open(tmp_path / "lab")
    assert len(again.results) == 1
    later = [e.measured.cell for e in run_on_ray(again, quiet) if isinstance(e, Done)]
    assert len(later) == 3
    assert again.left == []
    assert starts(tmp_path).count("plain") == 1
    assert list(run_on_ray(again, quiet)) == []


class Stop(Exception):
    """The reader pressed a button."""


def test_what_a_report_raises_ends_a_server_that_hangs(ray: Any, tmp_path: Path) -> None:
    store = lab(tmp_path, matrix(), timeout=60.0, hang="first", only="7")
    with pytest.raises(Stop):
        list(run_on_ray(store, _when("warming up", Stop)))
    assert starts(tmp_path) == ["plain", "7"]
    assert alive(tmp_path) == []
    assert store.results == {}


def _when(words: str, error: type[Exception]) -> Report:
    def report(said: str, _share: float) -> None:
        if words in said:
            raise error

    return report


def test_a_worker_that_is_killed_costs_one_cell_and_its_server_is_ended(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker at a time, so that it is the one that has the cell."""
    monkeypatch.setattr("engine.isolate.on_ray.slots", lambda *needs: 1)
    tried = matrix(used_prompts=(1, 0))
    store = lab(tmp_path, tried, timeout=60.0, hang="second", only="7")
    killed: list[int] = []

    def report(said: str, _share: float) -> None:
        if "p1: warming up" in said and not killed:
            killed.extend(processes("ray::Worker"))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    results = [e.measured for e in run_on_ray(store, report) if isinstance(e, Done)]
    lost, measured = results
    assert len(killed) == 1
    assert (lost.error or "").startswith("worker: ")
    assert lost.cell.prompt == 1
    assert measured.error is None
    deadline = time.monotonic() + 15
    while alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(tmp_path) == []


def test_a_plain_server_that_dies_is_every_cells_error(ray: Any, tmp_path: Path) -> None:
    store = lab(tmp_path, matrix(batches=(1, 2)), crash=True, only="plain")
    results = [e.measured for e in run_on_ray(store, quiet) if isinstance(e, Done)]
    assert len(results) == 2
    assert all("plain: ended with status 3" in (result.error or "") for result in results)
    assert starts(tmp_path) == ["plain"]


def test_no_node_has_what_a_cell_needs(ray: Any, tmp_path: Path) -> None:
    store = lab(tmp_path, matrix())
    message = r"^ray: expected a node with 1 CPUs and 8 GPUs, found 2 and \d+$"
    with pytest.raises(ClusterError, match=message):
        list(run_on_ray(store, quiet, num_gpus=8))
    assert slots(ray, 1, 0) == 2
    assert slots(ray, 2, 0) == 1


def test_a_cluster_is_reached_by_its_address(ray: Any) -> None:
    """From a process of its own: this one is connected already."""
    code = (
        "import sys; from engine.isolate.ray_cluster import cluster, slots\n"
        "with cluster(sys.argv[1], 60.0) as ray: print(slots(ray, 1, 0), ray.is_initialized())\n"
        "print(ray.is_initialized())"
    )
    address = ray.get_runtime_context().gcs_address
    words = [sys.executable, "-c", code, address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["2", "True", "False"], done.stderr


def test_no_server_loads_ahead_on_a_worker(tmp_path: Path) -> None:
    """Ports that follow the one that it found may be another worker's."""
    on = subject(tmp_path, ahead=2)
    moved = here(Experiment(matrix(), on)).subject
    assert isinstance(moved, ServerSubject)
    assert replace(moved, url=on.url, ahead=2) == on
    assert moved.ahead == 0


def test_a_server_whose_port_cannot_be_chosen_is_refused(tmp_path: Path) -> None:
    told = replace(subject(tmp_path), command=("serve", "--budget", "{budget}"))
    store = Store.create(tmp_path / "lab", Experiment(matrix(), told))
    message = (
        "command: expected {port}, since servers on one machine must not meet, found it nowhere"
    )
    with pytest.raises(ValueError, match="^" + message.replace("{", "\\{")):
        list(run_on_ray(store, quiet))


def test_a_wrong_experiment_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    told = replace(subject(tmp_path), command=("serve", "{port}", "{buget}"))
    store = Store.create(tmp_path / "lab", Experiment(matrix(), told))
    with pytest.raises(ValueError, match=r"command, word 3: .* found \{buget\}"):
        list(run_on_ray(store, quiet))


def test_without_ray_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError) as caught:
        list(run_on_ray(lab(tmp_path, matrix()), quiet))
    how = "pip install 'ddtree-workbench[ray]'"
    assert str(caught.value) == f"ray: expected to be installed ({how}), found no such package"


def test_an_address_where_nothing_listens_is_told_at_once() -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"^ray at {address}: .*refused"):
            require_head(address, 20.0)


def test_an_address_where_something_else_listens_is_given_up() -> None:
    pytest.importorskip("ray")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        address = f"127.0.0.1:{found.getsockname()[1]}"
        with pytest.raises(ClusterError) as caught:
            require_head(address, 1.5)
    assert str(caught.value) == f"ray at {address}: expected an answer within 1.5 s, found none"


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "somewhere", "127.0.0.1:", ":1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match=r"^address: expected local, auto or host:port"):
        require_head(address, 1.0)
