"""``ddtree minimize`` on the bundled story, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.trace import open_trace
from fixtures import TRACES

MAIN = "from workbench.cli import main; main()"


def ddtree(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words], capture_output=True, text=True, cwd=cwd, timeout=120
    )


def pytest_in(folder: Path) -> int:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_repro.py"],
        cwd=folder,
        capture_output=True,
        check=False,
    ).returncode


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("minimize")
    faulty = str(TRACES / "story-16-4-verify-width.ddtree.arrow")
    done = ddtree("minimize", faulty, "--out", "small", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "small", done.stdout


def test_the_story_becomes_one_step_of_two_nodes(made: tuple[Path, str]) -> None:
    folder, said = made
    trace = open_trace(folder / "steps.jsonl")
    assert len(trace) == 1
    (request,) = trace.step(0).requests
    assert len(request.tree.parents) == 2
    assert request.prefix_len == 1
    assert "width-mismatch" in said
    assert (folder / "steps.jsonl").stat().st_size < 4000


def test_the_test_fails_until_the_steps_are_mended(made: tuple[Path, str]) -> None:
    folder, _ = made
    assert pytest_in(folder) == 1
    wrong = (folder / "steps.jsonl").read_text()
    step = open_trace(folder / "steps.jsonl").step(0)
    from dataclasses import replace

    from engine.oracle import Oracle
    from engine.trace import dumps

    geometry = Oracle(step).geometry
    right = replace(
        step,
        config=replace(step.config, num_draft_tokens=2),
        inputs=replace(
            step.inputs,
            qo_indptr=geometry.qo_indptr,
            mask_indptr=geometry.mask_indptr,
            max_extend_len=2,
        ),
        outcome=replace(step.outcome, target_predict=step.reference.target_predict),
        reference=replace(step.reference, target_predict=None),
    )
    try:
        (folder / "steps.jsonl").write_text(dumps(right) + "\n")
        assert "width-mismatch" not in ddtree("check", "steps.jsonl", cwd=folder).stdout
    finally:
        (folder / "steps.jsonl").write_text(wrong)


def test_a_clean_recording_and_an_existing_folder_are_refused(tmp_path: Path) -> None:
    clean = str(TRACES / "story-16-4.ddtree.arrow")
    done = ddtree("minimize", clean, "--out", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "expected steps with a fault, found none\n"
    (tmp_path / "y").mkdir()
    done = ddtree("minimize", clean, "--out", "y", cwd=tmp_path)
    assert "exists already" in done.stderr
