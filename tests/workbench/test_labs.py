"""Experiments in the background. Run: pytest tests/workbench/test_labs.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lab_sample import SMALL, FakeMeasure, failed, made, story, until

from engine.isolate.experiment import Experiment, LocalSubject, ServerSubject
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome
from engine.isolate.store import Store
from engine.isolate.verdict import Kind
from workbench import lab_folders
from workbench.background import JobStore, State
from workbench.labs import Lab, LabStore

CELLS = list(SMALL)
CAME_ALONG = (
    "fixtures/sglang-mended",
    "fixtures/sglang-verify-width",
    "fixtures/story-verify-width",
)
ASKED = Experiment(SMALL, LocalSubject(fault="verify-width"))


@pytest.fixture
def measure() -> FakeMeasure:
    return FakeMeasure()


@pytest.fixture
def labs(traces: Path, measure: FakeMeasure) -> LabStore:
    return LabStore(lambda experiment, folder: measure, JobStore())


def ended(lab: Lab) -> State:
    until(lambda: not lab.running)
    assert lab.job is not None
    return lab.job.state


def test_an_experiment_is_measured_and_kept(labs: LabStore, measure: FakeMeasure) -> None:
    lab = labs.create(ASKED)
    until(lambda: lab.now is not None)
    assert lab.own
    assert (lab.now.number, lab.now.total, lab.seconds_left) == (0, 16, None)
    measure.let_on.set()
    assert ended(lab) is State.FINISHED
    assert (measure.closed, lab.now) == (1, None)
    assert Store.open(lab.store.folder).results == {cell: story(cell) for cell in CELLS}
    judged = labs.open(lab.store.folder).judged()
    assert judged.verdict.kind is Kind.WRONG
    assert judged.outcomes[CELLS[0]] is Outcome.CLEAN
    assert judged is lab.judged()


def test_it_is_stopped_and_goes_on(labs: LabStore, measure: FakeMeasure) -> None:
    lab = labs.create(ASKED)
    until(lambda: lab.job.fraction > 0)
    lab.job.stop()
    assert ended(lab) is State.STOPPED
    assert measure.closed == 1
    measure.let_on.set()
    labs.resume(lab)
    assert ended(lab) is State.FINISHED
    assert not lab.store.left


def test_cells_beside_the_matrix_are_added(
    labs: LabStore, measure: FakeMeasure, traces: Path
) -> None:
    measure.let_on.set()
    lab = labs.open(made(lab_folders.labs_folder() / "x", map(story, CELLS)).folder)
    other = replace(CELLS[0], budget=6)
    labs.resume(lab, [other])
    assert ended(lab) is State.FINISHED
    assert measure.cells == [other]
    again = labs.open(lab.store.folder).store
    assert again.results.keys() == {*CELLS, other}
    assert again.experiment.matrix.budgets == (7, 16, 6)
    assert len(again.left) == 7


def test_one_at_a_time(labs: LabStore) -> None:
    lab = labs.create(ASKED)
    with pytest.raises(ValueError, match="is measured now: stop it first"):
        labs.create(ASKED)
    assert labs.running() is lab
    lab.job.stop()
    ended(lab)
    assert len(lab_folders.entries()) == 1 + len(CAME_ALONG)


def test_a_subject_that_cannot_be_made_is_one_sentence(traces: Path) -> None:
    def make(experiment: Experiment, folder: Path) -> FakeMeasure:
        raise ValueError("model: not here")

    lab = LabStore(make, JobStore()).create(ASKED)
    assert ended(lab) is State.FAILED
    assert lab.job.error == "model: not here"


def test_what_another_process_measures_is_seen(labs: LabStore, traces: Path) -> None:
    other = made(lab_folders.labs_folder() / "x", [story(CELLS[0])])
    assert len(labs.open(other.folder).judged().results) == 1
    other.add(failed(CELLS[1]))
    judged = labs.open(other.folder).judged()
    assert judged.outcomes[CELLS[1]] is Outcome.FAILED


def test_what_is_no_experiment_is_refused(labs: LabStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the folder of an experiment"):
        labs.open(tmp_path / "absent")


def test_names_of_experiments(traces: Path, tmp_path: Path) -> None:
    folder = lab_folders.labs_folder()
    own, sent = made(folder / "own").folder, made(folder / "imported" / "sent").folder
    assert {entry.key for entry in lab_folders.entries()} == {"own", "imported/sent", *CAME_ALONG}
    assert lab_folders.folder_of("imported/sent") == sent
    assert lab_folders.folder_of("/elsewhere/x") == Path("/elsewhere/x")
    for path in (own, sent, tmp_path / "other"):
        assert lab_folders.folder_of(lab_folders.key_of(path)) == path
    assert [lab_folders.is_own(p) for p in (own, sent, tmp_path / "other")] == [True, False, False]
    server = Experiment(SMALL, ServerSubject(("a",), ("b",)))
    assert "-server-" in lab_folders.new_folder(server).name
    assert "smollm2-verify-width" in lab_folders.new_folder(ASKED).name


@pytest.mark.parametrize("name", ["../secret", "..", ".", "", "/etc/passwd", "absent", "link"])
def test_a_recording_lies_beside_its_result_or_nowhere(name: str, tmp_path: Path) -> None:
    store = made(tmp_path / "lab")
    (tmp_path / "secret").write_text("x")
    (store.traces / "link").symlink_to(tmp_path / "secret")
    (store.traces / "there").write_text("x")
    assert lab_folders.recording_of(store, Measured(CELLS[0], trace=name)) is None
    assert lab_folders.recording_of(store, Measured(CELLS[0], trace="there")) is not None
