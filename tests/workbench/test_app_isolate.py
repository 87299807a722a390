"""The Isolate page, with measures that take no model. Run: pytest tests/workbench/test_app_isolate.py."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from app_driver import figures, open_app, params, words
from lab_sample import HOSTILE, SMALL, FakeMeasure, compared, failed, made, story, until

from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.export import pack_lab
from engine.isolate.matrix import Matrix
from engine.isolate.plan import plan_of
from engine.isolate.store import Store
from workbench import labs
from workbench.background import JobStore
from workbench.lab_folders import labs_folder
from workbench.labs import LabStore

CELLS = list(SMALL)


@pytest.fixture
def measure() -> FakeMeasure:
    return FakeMeasure()


@pytest.fixture
def held(traces: Path, measure: FakeMeasure, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabStore]:
    found = LabStore(lambda experiment, folder: measure, JobStore())
    monkeypatch.setattr(labs, "store", lambda: found)
    yield found
    measure.let_on.set()
    until(lambda: found.running() is None)


def labels(at) -> list[str]:
    return [button.label for button in at.button]


def finished(name: str = "done") -> Store:
    return made(labs_folder() / name, map(story, CELLS), fault="verify-width")


def test_the_form_begins_with_the_story_and_says_the_plan(held: LabStore) -> None:
    at = open_app("isolate")
    assert not at.exception
    assert "Which of budget, top" in words(at)
    assert str(plan_of(Experiment(), {})) in words(at)
    assert "how long is known after the first cell" in words(at)
    assert at.text_input(key="lab budgets").value == "7, 16"
    at.text_input(key="lab budgets").set_value("7, 8, 16").run()
    assert f"{len(Matrix(budgets=(7, 8, 16)))} cells" in words(at)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("lab budgets", "many", "budgets: expected whole numbers such as 7, 16, found 'many'"),
        ("lab budgets", "0", "budget: expected at least 1, found 0"),
        ("lab topks", "4, 4", "topks: expected each value once"),
        ("lab temperatures", "101", "temperature: expected 0 … 100"),
        ("lab budgets", "5000", "budget: expected at most"),
        ("lab seeds", ", ".join(map(str, range(600))), "expected at most 4096 cells"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_and_starts_nothing(
    key: str, value: str, said: str, held: LabStore
) -> None:
    at = open_app("isolate")
    at.text_input(key=key).set_value(value).run()
    assert not at.exception
    assert len(at.error) == 1
    assert said in at.error[0].value.replace("\\", "")
    assert "Start" not in labels(at)


def test_no_prompt_and_a_prompt_that_is_gone(held: LabStore) -> None:
    at = open_app("isolate")
    at.multiselect(key="lab used prompts").set_value([0, 2]).run()
    at.text_area(key="lab prompts").set_value("only one").run()
    assert not at.exception
    at.text_area(key="lab prompts").set_value(" ").run()
    assert not at.exception
    assert "expected at least one, none of them blank" in at.error[0].value


def test_a_server_has_its_own_fields(held: LabStore) -> None:
    at = open_app("isolate")
    at.button_group(key="lab subject").set_value("server").run()
    assert not at.exception
    assert "9 server starts, " in words(at)
    at.number_input(key="lab ahead").set_value(2).run()
    assert "9 server starts (up to 2 ahead), " in words(at).replace("\\", "")
    at.text_area(key="lab plain command").set_value("run --port 30000").run()
    said = at.error[0].value.replace("\\", "")
    assert "plain_command: expected {port}, since servers that load ahead" in said
    at.text_area(key="lab command").set_value("run 'open").run()
    assert "No closing quotation" in at.error[0].value


def test_how_long_is_tried_on_a_few_tokens(held: LabStore) -> None:
    at = open_app("isolate")
    at.number_input(key="lab tokens").set_value(21).run()
    at.button(key="lab estimate").click().run()
    until(lambda: "from a few tokens of" in words(at.run()))
    assert "about" in words(at)


def test_an_experiment_runs_shows_its_cells_and_is_stopped(
    held: LabStore, measure: FakeMeasure
) -> None:
    at = open_app("isolate")
    at.number_input(key="lab tokens").set_value(12)
    at.selectbox(key="lab fault").set_value("verify-width")
    at.button(key="lab start").click().run()
    assert not at.exception
    lab = held.running()
    assert params(at)["lab"] == lab.key
    assert lab.store.experiment.subject.fault == "verify-width"
    assert "Nothing was measured yet" in words(at)
    until(lambda: lab.job.fraction > 0)
    at.run()
    progress = at.get("progress")[0].proto.text
    assert f"cell 1 of {len(lab.store.experiment.matrix)}" in progress
    assert "time left: known after the first cell" in progress.replace("\\", "")
    lab.job.stop()
    until(lambda: not lab.running)
    at.run()
    assert "Stopped: no cell was done yet." in words(at)
    measure.let_on.set()
    at.button(key="lab resume").click().run()
    until(lambda: not lab.running)
    at.run()
    assert not at.exception
    assert "Wrong only where q\\_len ≠ block size 8" in at.error[0].value


def test_a_finished_one_shows_verdict_proof_and_the_texts_that_prove_it(held: LabStore) -> None:
    finished()
    at = open_app("isolate", lab="done")
    assert not at.exception
    assert "Wrong only where" in at.error[0].value
    shown = words(at)
    assert "**What proves it**" in shown
    assert "✖] 8 wrong · ✓ 8 clean" in shown
    assert "The ocean is ⟦abuma⟧" in shown
    assert "The ocean is ⟦wide⟧" in shown
    assert "6 findings of 1 check" in shown
    assert "ddtree explain width-mismatch" in shown
    grid = next(f for f in figures(at) if any(d.get("name") == "outcomes" for d in f["data"]))
    assert {d["name"] for d in grid["data"]} >= {"wrong", "clean", "places"}
    at.button(key="proof budget 0 other").click().run()
    assert params(at)["cell"] == "b7-k1-eager-n1-p0"
    assert "budget 7, top\\-k 1, graphs off" in words(at)
    assert "⟦" not in words(at)


def test_a_cell_leads_to_its_recording(held: LabStore, traces: Path) -> None:
    store = made(labs_folder() / "done", [story(CELLS[-1], "a.ddtree.arrow")])
    shutil.copy(traces / "broken.ddtree.arrow", store.traces / "a.ddtree.arrow")
    at = open_app("isolate", lab="done", trace="clean", step=3)
    asked = [json.loads(json.dumps(str(link.proto.query_string))) for link in at.get("page_link")]
    own = [text for text in asked if "labs%2Fdone%2Ftraces%2Fa.ddtree.arrow" in text]
    assert len(own) == 2
    assert not any("step=" in text for text in own)


def test_what_would_tell_more_is_measured_too(
    held: LabStore, measure: FakeMeasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, judge = replace(CELLS[0], budget=6), labs.judge
    monkeypatch.setattr(labs, "judge", lambda *a: replace(judge(*a), missing=(other,)))
    measure.let_on.set()
    finished()
    at = open_app("isolate", lab="done")
    at.button(key="lab measure missing").click().run()
    until(lambda: held.running() is None)
    assert not at.exception
    assert measure.cells == [other]
    assert len(Store.open(labs_folder() / "done").results) == len(CELLS) + 1


def test_failed_cells_are_measured_again(held: LabStore, measure: FakeMeasure) -> None:
    measure.let_on.set()
    made(labs_folder() / "odd", [failed(CELLS[0]), *map(story, CELLS[1:])])
    at = open_app("isolate", lab="odd", cell=CELLS[0].key)
    assert "RuntimeError: no room" in words(at).replace("\\", "")
    at.button(key="lab failed again").click().run()
    until(lambda: held.running() is None)
    assert measure.cells == [CELLS[0]]
    assert Store.open(labs_folder() / "odd").results[CELLS[0]] == story(CELLS[0])


def test_a_second_one_is_refused_and_the_first_can_be_found(held: LabStore) -> None:
    finished()
    at = open_app("isolate")
    at.button(key="lab start").click().run()
    going = held.running()
    at.query_params["lab"] = "done"
    at.run()
    at.button(key="lab repeat").click().run()
    assert "is measured now: stop it first" in words(at).replace("\\", "")
    at.button(key="lab show running").click().run()
    assert params(at)["lab"] == going.key


def test_values_of_an_experiment_are_changed_in_the_form(held: LabStore) -> None:
    made(labs_folder() / "mine", matrix=replace(SMALL, budgets=(3, 5)), fault="sibling-leak")
    at = open_app("isolate", lab="mine")
    assert "Nothing was measured yet" in words(at)
    at.button(key="lab change").click().run()
    assert "lab" not in params(at)
    assert at.text_input(key="lab budgets").value == "3, 5"
    assert at.selectbox(key="lab fault").value == "sibling-leak"
    assert at.number_input(key="lab tokens").value == 12


@pytest.mark.parametrize("name", ["nowhere", "torn", "/etc", "**b** <img src=x>"])
def test_what_is_no_experiment_is_one_sentence_with_a_way_out(name: str, held: LabStore) -> None:
    torn = made(labs_folder() / "torn").folder
    (torn / "experiment.json").write_text('{"matrix": 7}')
    at = open_app("isolate", lab=name)
    assert not at.exception
    assert "cannot be shown" in at.warning[0].value
    assert "**b**" not in at.warning[0].value
    at.button(key="lab new instead").click().run()
    assert "Plan" in words(at)


def test_a_cell_that_is_not_there_and_one_that_waits(held: LabStore) -> None:
    made(labs_folder() / "part", [story(CELLS[0])])
    at = open_app("isolate", lab="part", cell="b1-k1")
    assert not at.exception
    assert "A click on a cell" in words(at)
    at = open_app("isolate", lab="part", cell=CELLS[1].key)
    assert "was not measured yet" in words(at)


def test_text_of_strangers_stays_text(held: LabStore) -> None:
    bad = replace(
        story(CELLS[-1]),
        requests=(compared(text=HOSTILE, at=0, prompt=HOSTILE),),
        sentence=HOSTILE,
        findings={HOSTILE: 1},
        diagnoses={HOSTILE: 1},
        trace="../../broken.ddtree.arrow",
    )
    made(labs_folder() / "bad", [bad, failed(CELLS[0], HOSTILE)], fault=HOSTILE, model=HOSTILE)
    for cell in (CELLS[-1], CELLS[0]):
        at = open_app("isolate", lab="bad", cell=cell.key)
        assert not at.exception
        for kind in ("markdown", "caption", "error", "warning", "success", "info"):
            for element in at.get(kind):
                bare = re.sub(r"`[^`]*`|\\.", "", element.value)  # without code and what is escaped
                assert not re.search(r"<img|\*\*b|:red\[x|\]\(java", bare), (kind, element.value)
    assert "Its recording is not here" in words(open_app("isolate", lab="bad", cell=CELLS[-1].key))


def test_an_export_is_opened_again_and_only_shown(held: LabStore, measure: FakeMeasure) -> None:
    store = finished()
    data = pack_lab(store, "Wrong.")
    at = open_app("isolate")
    at.file_uploader(key="lab upload").set_value(
        ("sent.isolate.zip", data, "application/zip")
    ).run()
    assert not at.exception
    assert params(at)["lab"].startswith("imported/sent-")
    assert "Wrong only where" in at.error[0].value
    assert "made elsewhere" in words(at)
    assert not {"lab repeat", "lab resume", "lab measure missing"} & {b.key for b in at.button}
    assert measure.cells == []


def test_a_command_of_a_stranger_is_never_begun_by_a_link(held: LabStore, tmp_path: Path) -> None:
    sent = made(tmp_path / "sent")
    subject = ServerSubject(("touch", "x"), ("touch", "y"))
    codec_line = replace(sent.experiment, subject=subject)
    from engine.isolate.codec import EXPERIMENT

    (sent.folder / "experiment.json").write_text(EXPERIMENT.dumps(codec_line))
    at = open_app("isolate", lab=str(sent.folder))
    assert not at.exception
    assert not {"lab repeat", "lab resume"} & {b.key for b in at.button}
    at.button(key="lab change").click().run()
    assert at.text_area(key="lab command").value == "touch x"


@pytest.mark.parametrize("data", [b"", b"no zip", b"PK\x05\x06" + b"\0" * 18])
def test_an_upload_that_is_none(data: bytes, held: LabStore) -> None:
    at = open_app("isolate")
    at.file_uploader(key="lab upload").set_value(("x.zip", data, "application/zip")).run()
    assert not at.exception
    assert "is not an experiment that can be opened" in words(at).replace("\\", "")
    assert not list((labs_folder() / "imported").glob("*"))


def test_the_file_says_the_verdict_first(held: LabStore) -> None:
    from workbench.panes.lab_export import words_of

    lab = held.open(finished().folder)
    text = words_of(lab, lab.judged())
    assert text.startswith("Wrong only where q_len ≠ block size 8")
    assert "fault: verify-width" in text


def test_the_storys_experiment_came_along(held: LabStore, measure: FakeMeasure) -> None:
    at = open_app("isolate", lab="fixtures/story-verify-width", cell="b4-k1-eager-n1-p0")
    assert not at.exception
    assert "8 of 12 cells" in at.error[0].value
    everything = " ".join([words(at), *(e.value for e in at.error), *(w.value for w in at.warning)])
    assert "expected at most 5" in everything.replace("\\", "")
    assert not any("Resume" in label for label in labels(at))
    assert measure.cells == []
