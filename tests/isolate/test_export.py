"""An experiment as one file, and what strangers may put into one. Run: pytest tests/isolate/test_export.py."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from engine.isolate.codec import EXPERIMENT, MEASURED
from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.export import MOST_TRACES, pack_lab, size_of, unpack_lab
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Compared, Measured
from engine.isolate.store import Store

MATRIX = Matrix(budgets=(7,), topks=(1,), batches=(1,), used_prompts=(0,), max_new_tokens=4)
CELLS = list(MATRIX)
WORDS = "Wrong in 1 of 2 cells."


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "lab", Experiment(MATRIX))
    for number, cell in enumerate(CELLS):
        made.add(
            Measured(cell, (Compared("p", "a", "a", (1,), (1,), None),), trace=f"{number}.bin")
        )
        (made.traces / f"{number}.bin").write_bytes(bytes([number]) * 9)
    return made


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "sent.zip"
    path.write_bytes(data)
    return path


def zipped(tmp_path: Path, members: dict[str, bytes]) -> Path:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written(tmp_path, sink.getvalue())


def test_what_was_exported_is_read_again(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path, pack_lab(store, WORDS, CELLS[:1]))
    again = unpack_lab(path, tmp_path / "again")
    assert again.experiment == store.experiment
    assert again.results == store.results
    assert [p.name for p in again.traces.iterdir()] == ["0.bin"]
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist()[0] == "README.txt"
        assert archive.read("README.txt").decode().startswith(WORDS)
    assert pack_lab(store, WORDS, CELLS[:1]) == path.read_bytes()


def test_sizes_are_told_before(store: Store) -> None:
    count, size = size_of(store, CELLS)
    assert count == 2
    assert size == 18 + (store.folder / "results.jsonl").stat().st_size
    assert size_of(store, [])[0] == 0


def test_values_of_the_environment_stay_here(tmp_path: Path) -> None:
    subject = ServerSubject(("run",), ("plain",), environment=(("TOKEN", "secret"),))
    store = Store.create(tmp_path / "server", Experiment(MATRIX, subject))
    again = unpack_lab(written(tmp_path, pack_lab(store, WORDS)), tmp_path / "again")
    assert again.experiment.subject.environment == (("TOKEN", "…"),)
    assert b"secret" not in pack_lab(store, WORDS)


def test_a_name_that_leads_elsewhere_is_no_recording(store: Store, tmp_path: Path) -> None:
    (tmp_path / "private").write_bytes(b"private")
    store.add(Measured(CELLS[0], trace="../../private"))
    assert size_of(store, CELLS)[0] == 1
    with zipfile.ZipFile(io.BytesIO(pack_lab(store, WORDS, CELLS))) as archive:
        assert archive.namelist()[3:] == ["traces/1.bin"]


def test_more_recordings_than_could_be_read_back_are_refused(tmp_path: Path) -> None:
    matrix = Matrix(seeds=tuple(range(MOST_TRACES + 1)), max_new_tokens=4)
    store = Store.create(tmp_path / "many", Experiment(matrix))
    for number, cell in enumerate(list(matrix)[: MOST_TRACES + 1]):
        store.add(Measured(cell, trace=f"{number}.bin"))
        (store.traces / f"{number}.bin").write_bytes(b"x")
    with pytest.raises(
        ValueError, match=f"recordings: expected at most 64, found {MOST_TRACES + 1}"
    ):
        pack_lab(store, WORDS, matrix)
    held = list(matrix)[:MOST_TRACES]
    unpack_lab(written(tmp_path, pack_lab(store, WORDS, held)), tmp_path / "again")


GOOD = EXPERIMENT.dumps(Experiment(MATRIX)).encode()


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"experiment.json": b"{}", "../x": b""}, "expected members README.txt"),
        ({"experiment.json": b"{}", "traces/../x": b""}, "expected members README.txt"),
        ({"experiment.json": b"{}", "traces/a/b": b""}, "expected members README.txt"),
        ({"README.txt": b"x"}, "experiment.json: expected a member, found none"),
        ({"experiment.json": b"[]"}, "experiment.json"),
        ({"experiment.json": b"\xff"}, "expected UTF-8"),
        ({"experiment.json": GOOD, "results.jsonl": b'{"cell": 1}\n'}, "results.jsonl:1: cell"),
        ({"experiment.json": GOOD, "README.txt": b"0" * (4 << 20)}, "at most 200-fold"),
    ],
)
def test_what_is_no_experiment_leaves_nothing(
    members: dict[str, bytes], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"^\S*sent.zip: ") as caught:
        unpack_lab(zipped(tmp_path, members), tmp_path / "labs" / "new")
    assert said in str(caught.value)
    assert not (tmp_path / "labs" / "new").exists()
    assert not (tmp_path / "labs").exists() or not any((tmp_path / "labs").iterdir())


def test_recordings_that_no_result_names_are_dropped(tmp_path: Path) -> None:
    line = f"{MEASURED.dumps(Measured(CELLS[0], trace='a.bin'))}\n".encode()
    members = {
        "experiment.json": GOOD,
        "results.jsonl": line,
        "traces/a.bin": b"a",
        "traces/b.bin": b"b",
    }
    again = unpack_lab(zipped(tmp_path, members), tmp_path / "new")
    assert [p.name for p in again.traces.iterdir()] == ["a.bin"]
    with pytest.raises(ValueError, match="expected a new folder"):
        unpack_lab(tmp_path / "sent.zip", tmp_path / "new")


def test_a_recording_that_is_a_link_stays_here(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (store.traces / "0.bin").unlink()
    (store.traces / "0.bin").symlink_to(tmp_path / "secret")
    again = unpack_lab(written(tmp_path, pack_lab(store, WORDS, CELLS)), tmp_path / "again")
    assert [p.name for p in again.traces.iterdir()] == ["1.bin"]
    assert size_of(store, CELLS)[0] == 1
