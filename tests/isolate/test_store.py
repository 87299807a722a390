"""The folder of an experiment: what is written is read back, whatever was cut off or made up is refused or left out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.isolate.cell import Cell
from engine.isolate.codec import EXPERIMENT, MEASURED
from engine.isolate.experiment import Experiment, LocalSubject, ServerSubject
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Compared, Measured
from engine.isolate.outcome import Outcome, outcomes
from engine.isolate.store import Store
from tests.isolate.results import measured

MATRIX = Matrix((7, 16), (1,), (False,), (1, 2), used_prompts=(0,))
CELLS = list(MATRIX)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
REQUESTS = st.builds(
    Compared,
    prompt=TEXTS,
    text=TEXTS,
    plain_text=TEXTS,
    tokens=st.none() | st.tuples(st.integers(0, 9)),
    plain_tokens=st.none() | st.tuples(),
    first_difference=st.none() | st.integers(0, 9),
    margin=st.none() | NUMBERS,
    near_tie=st.none() | st.booleans(),
)
RESULTS = st.builds(
    Measured,
    cell=st.sampled_from(CELLS),
    requests=st.lists(REQUESTS, max_size=2).map(tuple),
    seconds=NUMBERS,
    tokens_per_s=st.none() | NUMBERS,
    findings=st.none() | st.dictionaries(TEXTS, st.integers(0, 5), max_size=2),
    error=st.none() | TEXTS,
)


@given(RESULTS)
def test_a_result_as_one_line_and_back(result: Measured) -> None:
    line = MEASURED.dumps(result)
    assert "\n" not in line
    assert MEASURED.loads(line, "f:1") == result


@pytest.mark.parametrize(
    "experiment",
    [
        Experiment(),
        Experiment(MATRIX, LocalSubject(fault="verify-width", checks=False)),
        Experiment(MATRIX, ServerSubject(("a", "{eager}"), ("b",), environment=(("X", "1"),))),
        Experiment(MATRIX, ServerSubject(("a", "{port}"), ("b", "-p={port}"), ahead=2)),
    ],
)
def test_an_experiment_as_one_line_and_back(experiment: Experiment) -> None:
    assert EXPERIMENT.loads(EXPERIMENT.dumps(experiment), "f") == experiment


CELL = '{"budget":7,"topk":1,"graphs":true,"batch":1,"prompt":0,"temperature":0.0,"seed":0}'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "f:1: cell: Field required"),
        ("[]", "f:1: the whole: Input should be an object"),
        ('{"cell":1}', "f:1: cell: Input should be an object, found 1"),
        (f'{{"cell":{CELL},"x":1}}', "f:1: x: Unexpected keyword argument, found 1"),
        (f'{{"cell":{CELL},"seconds":"1"}}', "f:1: seconds: Input should be a valid number"),
        (f'{{"cell":{CELL},"seconds":1e999}}', "f:1: seconds: Input should be a finite number"),
        (f'{{"cell":{CELL},"cell":{CELL}}}', "f:1: expected each key once, found 'cell' twice"),
        ('{"cell":' + CELL.replace("7", "7.5") + "}", "f:1: cell.budget: Input should be a valid"),
        ('{"cell":' + CELL.replace("7", "0") + "}", "budget: expected at least 1, found 0"),
        ('{"cell":' + "[" * 100_000, "f:1: expected"),
        ("nonsense", "f:1: expected JSON, found"),
    ],
)
def test_a_line_that_is_no_result(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        MEASURED.loads(line, "f:1")


def test_it_goes_on_where_it_was_left(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "lab", Experiment(MATRIX))
    assert store.left == CELLS
    store.add(measured(CELLS[1], Outcome.WRONG))
    again = Store.open(tmp_path / "lab")
    assert again.experiment == Experiment(MATRIX)
    assert again.left == [CELLS[0], *CELLS[2:]]
    assert again.results == store.results
    again.forget(CELLS[1])
    again.add(measured(CELLS[1], Outcome.CLEAN))
    assert Store.open(tmp_path / "lab").results == {CELLS[1]: measured(CELLS[1], Outcome.CLEAN)}


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    store = Store.create(tmp_path, Experiment(MATRIX))
    store.add(measured(CELLS[0], Outcome.CLEAN))
    store.add(measured(CELLS[1], Outcome.WRONG))
    path = tmp_path / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    again = Store.open(tmp_path)
    assert again.left == CELLS[1:]
    again.add(measured(CELLS[2], Outcome.CLEAN))
    lines = path.read_text().splitlines()
    assert [json.loads(line)["cell"]["batch"] for line in lines] == [1, 1]
    assert Store.open(tmp_path).left == [CELLS[1], CELLS[3]]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ValueError, match="expected a new or an empty folder, found something"):
        Store.create(tmp_path, Experiment())
    with pytest.raises(ValueError, match="expected a new or an empty folder"):
        Store.create(tmp_path / "mine", Experiment())
    with pytest.raises(ValueError, match=r"expected the folder of an experiment \(experiment.json"):
        Store.open(tmp_path)


def test_a_result_of_another_experiment_is_refused(tmp_path: Path) -> None:
    store = Store.create(tmp_path, Experiment(MATRIX))
    store.add(measured(CELLS[0], Outcome.CLEAN))
    foreign = measured(Cell(99, 1, False, 1, 0, 0.0, 0), Outcome.CLEAN)
    with open(tmp_path / "results.jsonl", "a") as file:
        file.write(MEASURED.dumps(foreign) + "\n")
    words = "results.jsonl:2: expected a cell of the experiment, found b99-k1-eager-n1-p0"
    with pytest.raises(ValueError, match=re.escape(words)):
        Store.open(tmp_path)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"", b"{", b"[1]", b"null"])
def test_an_experiment_that_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "experiment.json").write_bytes(data)
    with pytest.raises(ValueError, match=r"experiment\.json"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (('"ahead":2', '"ahead":"2"'), "f: subject.ServerSubject.ahead: Input should be a valid"),
        (('"ahead":2', '"ahead":true'), "f: subject.ServerSubject.ahead: Input should be a valid"),
        (('"ahead":2', '"ahead":-1'), "ahead: expected at least 0, found -1"),
        (('"{port}"', '"30000"'), "plain_command: expected {port}, since servers that load ahead"),
    ],
)
def test_servers_ahead_that_are_none(changes: tuple[str, str], words: str) -> None:
    subject = ServerSubject(("a:{port}",), ("{port}",), ahead=2)
    line = EXPERIMENT.dumps(Experiment(MATRIX, subject))
    with pytest.raises(ValueError, match="subject") as caught:
        EXPERIMENT.loads(line.replace(*changes), "f")
    assert words in str(caught.value)


def test_an_experiment_from_before_servers_loaded_ahead() -> None:
    experiment = Experiment(MATRIX, ServerSubject(("a",), ("b",)))
    line = EXPERIMENT.dumps(experiment)
    assert '"ahead":0,' in line
    assert EXPERIMENT.loads(line.replace('"ahead":0,', ""), "f") == experiment


def test_another_near_tie_asks_for_no_server(tmp_path: Path) -> None:
    """A text that parts at a margin of 0.3 is right below a tie of 0.4, and wrong above one of 0.25."""
    subject = ServerSubject(("a",), ("b",), tie=0.4)
    store = Store.create(tmp_path / "lab", Experiment(MATRIX, subject))
    cell = next(iter(MATRIX))
    near, equal = (
        Compared("p", "x", "y", (1,), (2,), 0, margin=0.3),
        Compared("p", "x", "x", (1,), (1,), None),
    )
    store.add(Measured(cell, (near, equal)))
    assert [r.near_tie for r in store.results[cell].requests] == [True, None]
    store.retie(0.25)
    assert [r.near_tie for r in store.results[cell].requests] == [False, None]
    again = Store.open(tmp_path / "lab")
    assert again.experiment.subject == replace(subject, tie=0.25)
    assert again.results == store.results
    assert outcomes(again.results.values())[cell] is Outcome.WRONG
    again.retie(0.4)
    assert outcomes(again.results.values())[cell] is Outcome.NEAR_TIE


def test_the_local_engine_knows_its_own_near_ties(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "lab", Experiment(MATRIX))
    cell = next(iter(MATRIX))
    store.add(Measured(cell, (Compared("p", "x", "y", (1,), (2,), 0, margin=0.3, near_tie=True),)))
    assert store.results[cell].requests[0].near_tie
    with pytest.raises(ValueError, match="tie: expected an experiment on a server"):
        store.retie(0.1)
