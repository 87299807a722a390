"""``ddtree leak``: what it prints, and its exit status, with a tiny target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.decoding.run_settings import RunSettings
from engine.decoding.session import run
from tests.decoding.tiny_target import tiny_target
from workbench.cli import app

TARGET = tiny_target()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("leak")
    for name, fault in (("clean", None), ("width", "verify-width")):
        settings = RunSettings(
            ("Hello there",),
            model="tiny",
            drafter="oracle",
            budget=9,
            block_size=4,
            max_new_tokens=9,
            fault=fault,
        )
        list(run(settings, TARGET, trace_path=made / f"{name}.ddtree.arrow"))
    return made


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.cli.device.load", lambda *_: TARGET)


def leak(*words: str):
    return CliRunner().invoke(app, ["leak", *words, "--target", "tiny"])


def test_a_clean_step_leaks_nothing(folder: Path) -> None:
    done = leak(str(folder / "clean.ddtree.arrow"), "--step", "0")
    assert done.exit_code == 0, done.output
    assert done.stdout == (
        "clean.ddtree.arrow: step 0, rank 0: tiny, 2 layers × 4 heads: no attention leaks; "
        "largest logit change 0; 10 of 10 written rows choose what was recorded\n"
    )


def test_a_wrong_width_leaks_by_row_layer_and_head(folder: Path) -> None:
    """Width 4 for 10 rows: rows 4 to 9 are never written."""
    done = leak(str(folder / "width.ddtree.arrow"), "--step", "0", "--json")
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert report["leaks"]
    assert len(report["by_head"]) == report["layers"] == 2
    assert {len(heads) for heads in report["by_head"]} == {4}
    rows = {row["row"]: row for row in report["rows"]}
    assert [row for row in rows if not rows[row]["written"]] == [4, 5, 6, 7, 8, 9]
    assert rows[0]["max"] == 0
    assert report["choices_kept"] == report["written_rows"] == 4  # run again, it does what it did
    assert max(rows[row]["places"]["not an ancestor"] for row in (1, 2, 3)) > 0
    text = leak(str(folder / "width.ddtree.arrow"), "--step", "0").stdout
    assert "6 rows are never written; they attend to nothing" in text
    assert "(layer, head)" in text


@pytest.mark.parametrize(
    ("path", "step", "words"),
    [
        ("fixtures/example.jsonl", "0", "prompts: expected the token ids of r0's prompt, found"),
        ("fixtures/example.jsonl", "7", "expected steps 0 … 0 (rank 0), found no step 7"),
        ("nowhere.ddtree.arrow", "0", "nowhere.ddtree.arrow: No such file or directory"),
    ],
)
def test_bad_input_is_one_line(path: str, step: str, words: str) -> None:
    done = leak(path, "--step", step)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
