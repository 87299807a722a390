"""``ddtree snapshot`` and ``ddtree convert`` through the console entry.

Run: pytest tests/cli
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import pytest

from engine.checks.finding import Verdict
from engine.trace import TraceHeader, TraceWriter, open_trace
from engine.trace.snapshot import import_snapshot
from tests.trace.examples import example_step
from workbench.cli.snapshot import numbered

ENTRY = "from workbench.cli import main; main()"


def ddtree(*arguments, cwd, status=None):
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def story(tmp_path):
    """Steps 0 … 5; positions are wrong in 3, links in 4."""
    path = tmp_path / "story.ddtree.arrow"
    with TraceWriter(path, TraceHeader(created_by="t")) as out:
        for number in range(6):
            wrong = {}
            if number == 3:
                wrong["inputs__positions"] = [2, 3, 3, 9]
            if number == 4:
                wrong["links__retrieve_next_sibling"] = [[-1, -1, -1, -1]]
            out.write(example_step(number, **wrong))
    return path


def test_first_faulty_step_of_each_cause(story, tmp_path):
    done = ddtree("snapshot", "export", story, "--out", "s.zip", cwd=tmp_path, status=0)
    read = import_snapshot(tmp_path / "s.zip")
    roles = {entry["step"]: entry["role"] for entry in read.manifest["steps"]}
    assert roles == {2: "context", 3: "chosen", 4: "chosen"}
    assert {"I10", "I12"} <= {finding.check for finding in read.findings}
    assert read.report_html_present
    size = (tmp_path / "s.zip").stat().st_size
    assert done.stdout.startswith(f"s.zip: {size:,} bytes; 2 chosen steps, 1 as context")
    verdicts = [finding.verdict for finding in read.findings]
    found = len(verdicts) - verdicts.count(Verdict.SKIPPED)
    assert 0 < found < len(verdicts)
    assert f", {found} findings\n" in done.stdout  # a skipped check found nothing
    shown = ddtree("snapshot", "show", "s.zip", cwd=tmp_path, status=0).stdout
    assert shown.startswith(f"s.zip: 3 steps, {found} findings")
    assert "left out: token texts" in done.stdout


def test_named_steps(story, tmp_path):
    ddtree(
        *("snapshot", "export", story, "--out", "s.zip", "--steps", "0,4-5", "--include-text"),
        cwd=tmp_path,
        status=0,
    )
    steps = import_snapshot(tmp_path / "s.zip").manifest["steps"]
    assert [s["step"] for s in steps if s["role"] == "chosen"] == [0, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "9"], "--steps: expected recorded steps, found 9-9"),
        (["--steps", "1-x"], "--steps: expected numbers as 3,5-9, found '1-x'"),
        (["--steps", "1", "--faults"], "--steps and --faults: expected one of them, found both"),
    ],
)
def test_wrong_steps(story, tmp_path, arguments, message):
    done = ddtree("snapshot", "export", story, "--out", "s.zip", *arguments, cwd=tmp_path, status=2)
    assert message in done.stderr
    assert not (tmp_path / "s.zip").exists()


def test_nothing_at_fault(tmp_path):
    path = tmp_path / "clean.ddtree.arrow"
    with TraceWriter(path, TraceHeader()) as out:
        out.write(example_step())
    done = ddtree("snapshot", "export", path, "--out", "s.zip", cwd=tmp_path, status=2)
    assert "nothing at fault in 1 steps; name some with --steps" in done.stderr


def test_show_and_import(story, tmp_path):
    ddtree("snapshot", "export", story, "--out", "s.zip", "--steps", "3", cwd=tmp_path, status=0)
    shown = ddtree("snapshot", "show", "s.zip", cwd=tmp_path, status=0).stdout
    assert shown.startswith("s.zip: 2 steps, ")
    assert "fault I10 step 3, rank 0: " in shown
    assert "left_out: token texts" in shown
    ddtree("snapshot", "import", "s.zip", "--to", "out", cwd=tmp_path, status=0)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["s.ddtree.arrow"]
    steps = list(open_trace(tmp_path / "out" / "s.ddtree.arrow"))
    assert steps == list(import_snapshot(tmp_path / "s.zip").trace)
    again = ddtree("snapshot", "import", "s.zip", "--to", "out", cwd=tmp_path, status=2)
    assert "File exists" in again.stderr


def test_the_recording_of_an_import_is_named_once(story, tmp_path):
    out = ("--out", "s.ddtree.zip", "--steps", "3")
    said = ddtree("snapshot", "export", story, *out, cwd=tmp_path, status=0).stdout
    assert "command and notes (token ids are included)\n" in said
    assert ", (" not in said
    shown = ddtree("snapshot", "show", "s.ddtree.zip", cwd=tmp_path, status=0).stdout
    assert "command and notes (token ids are included)\n" in shown
    ddtree("snapshot", "import", "s.ddtree.zip", "--to", "out", cwd=tmp_path, status=0)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["s.ddtree.arrow"]


@pytest.mark.parametrize("command", ["show", "import"])
def test_hostile_snapshot(tmp_path, command):
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("../../x", "y")
    to = ["--to", "out"] if command == "import" else []
    done = ddtree("snapshot", command, "s.zip", *to, cwd=tmp_path, status=2)
    assert done.stderr.startswith("s.zip: expected members manifest.json")
    assert "../../x" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["s.zip"]


def test_convert(story, tmp_path):
    done = ddtree("convert", story, "a.jsonl", cwd=tmp_path, status=0)
    assert done.stdout == "a.jsonl: 6 steps\n"
    assert list(open_trace(tmp_path / "a.jsonl")) == list(open_trace(story))
    again = ddtree("convert", story, "a.jsonl", cwd=tmp_path, status=2)
    assert again.stderr == "a.jsonl exists already\n"


def test_step_numbers_are_not_positions(tmp_path):
    path = tmp_path / "a.ddtree.arrow"
    with TraceWriter(path, TraceHeader()) as out:
        for number in (10, 11, 20):
            out.write(example_step(number))
    assert numbered(open_trace(path), "11-20, 10") == [0, 1, 2]
    assert numbered(open_trace(path), "20") == [2]


def test_an_export_never_replaces_the_recording_itself(tmp_path):
    path = tmp_path / "a.ddtree.arrow"
    with TraceWriter(path, TraceHeader()) as out:
        out.write(example_step())
    (tmp_path / "b.zip").symlink_to(path)
    before = path.read_bytes()
    for name in ("a.ddtree.arrow", "b.zip"):
        done = ddtree(*("snapshot", "export", path, "--out", name, "--steps", "0"), cwd=tmp_path)
        assert done.returncode == 2
        assert "another file than the recording itself" in done.stderr
    assert path.read_bytes() == before
