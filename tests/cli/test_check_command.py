"""``ddtree check`` through the console entry: exit statuses, what goes where, and both formats.

Run: pytest tests/cli
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import pytest

from engine.trace import TraceHeader, TraceWriter
from engine.trace.snapshot import export_snapshot
from tests.trace.examples import changed, edited, example_step, line

ENTRY = "from workbench.cli import main; main()"
FIELDS = [
    *("check", "name", "verdict", "step", "rank", "request", "where", "expected", "found", "count"),
    *("diagnosis", "message", "hint", "effect", "consequence_of"),
]
FAULTY = changed("inputs.positions.3", 9)


def ddtree(*arguments, cwd, status=None):
    """Run the command as the console script does; ``status``: what it must end with."""
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def clean(tmp_path):
    (tmp_path / "clean.jsonl").write_text(line() + "\n")
    return tmp_path / "clean.jsonl"


@pytest.fixture
def faulty(tmp_path):
    later = edited(lambda obj: (obj.update(FAULTY), obj.update(step=2)))
    (tmp_path / "faulty.jsonl").write_text(f"{line(FAULTY)}\n{line(later)}\n")
    return tmp_path / "faulty.jsonl"


def test_console_script_is_declared(request):
    declared = tomllib.loads((request.config.rootpath / "pyproject.toml").read_text())
    assert declared["project"]["scripts"]["ddtree"] == "workbench.cli:main"


def test_clean_recording(clean, tmp_path):
    done = ddtree("check", clean, cwd=tmp_path, status=0)
    first, *rest = done.stdout.splitlines()
    assert first.startswith("clean.jsonl: 1 step, ")
    assert "nothing wrong" in first
    assert "lacked inputs (" in first
    assert (rest, done.stderr) == ([], "")


def test_faulty_recording(faulty, tmp_path):
    done = ddtree("check", faulty, cwd=tmp_path, status=1)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("faulty.jsonl: 1 cause in 2 steps")
    assert lines[1] == ""
    assert lines[2].startswith("  I10 positions · ")
    assert lines[2].endswith("fault · steps 0 … 2 (2), 2 findings")
    assert "9" in lines[3]
    assert "    effect: output" in lines
    assert done.stderr == ""


def test_json_lines(faulty, tmp_path):
    done = ddtree("check", faulty, "--format", "json", cwd=tmp_path, status=1)
    findings = [json.loads(text) for text in done.stdout.splitlines()]
    assert all(list(finding) == FIELDS for finding in findings)
    faults = [f for f in findings if f["verdict"] == "fault"]
    assert [(f["check"], f["step"]) for f in faults] == [("I10", 0), ("I10", 2)]
    assert {f["verdict"] for f in findings} == {"fault", "skipped"}
    assert list(findings[0]["where"]) == ["node", "row", "column", "layer", "byte", "cells"]


def test_every_kind_of_recording(faulty, tmp_path):
    arrow, zipped = tmp_path / "a.ddtree.arrow", tmp_path / "s.zip"
    ddtree("convert", faulty, arrow, cwd=tmp_path, status=0)
    ddtree("check", arrow, cwd=tmp_path, status=1)
    from engine.trace import open_trace

    export_snapshot(zipped, open_trace(arrow), [1], [])
    done = ddtree("check", zipped, cwd=tmp_path, status=1)
    assert done.stdout.startswith("s.zip: 1 cause in 1 step")


def test_unreadable_input_does_not_hide_the_others(faulty, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(line(changed("requests.0.tree.parents.3", "x")) + "\n")
    missing = tmp_path / "missing.jsonl"
    done = ddtree("check", bad, faulty, missing, "--format", "json", cwd=tmp_path, status=2)
    assert any(json.loads(text)["check"] == "I10" for text in done.stdout.splitlines())
    assert done.stderr.splitlines() == [
        f"{bad}:1: requests[0].tree.parents[3]: expected an integer, found 'x'",
        f"{missing}: No such file or directory",
    ]


def test_readable_lines_of_a_damaged_file_are_checked(tmp_path):
    path = tmp_path / "mixed.jsonl"
    path.write_text(f"{line(FAULTY)}\nnonsense\n{{}}\n")
    done = ddtree("check", path, cwd=tmp_path, status=2)
    assert done.stdout.startswith("mixed.jsonl: 1 cause in 1 step")
    assert done.stderr == (
        f"{path}:2: expected JSON, found expecting value at character 1"
        " (and 1 more unreadable steps)\n"
    )


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"{", b"\xff\xff\xff\xff", b"PK\x03\x04", b"\x00" * 99]
)
def test_no_recording(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    done = ddtree("check", path, cwd=tmp_path, status=2)
    assert done.stdout == ""
    assert done.stderr.startswith(f"{path}")
    assert done.stderr.count("\n") == 1


def test_recording_without_a_step(tmp_path):
    path = tmp_path / "a.ddtree.arrow"
    TraceWriter(path, TraceHeader()).close()
    done = ddtree("check", path, cwd=tmp_path, status=2)
    assert done.stderr == f"{path}: expected at least one step, found none\n"


def test_torn_tail_is_told_but_no_error(tmp_path):
    path = tmp_path / "a.ddtree.arrow"
    with TraceWriter(path, TraceHeader()) as out:
        for number in range(3):
            out.write(example_step(2 * number))
    os.truncate(path, path.stat().st_size - 100)
    done = ddtree("check", path, cwd=tmp_path, status=0)
    assert done.stdout.startswith("a.ddtree.arrow: 2 steps, ")
    assert done.stderr == f"{path}: ends within a step; the complete ones before it were checked\n"


def test_directory_of_ranks_is_one_recording(tmp_path):
    for rank in (0, 1):
        with TraceWriter(tmp_path / f"rank{rank}.ddtree.arrow", TraceHeader()) as out:
            out.write(example_step(0, rank))
    done = ddtree("check", tmp_path, cwd=tmp_path, status=0)
    assert done.stdout.startswith(f"{tmp_path.name}: 2 steps, ")


def test_directory_of_unrelated_recordings(clean, faulty, tmp_path):
    done = ddtree("check", tmp_path, cwd=tmp_path, status=1)
    heads = [text for text in done.stdout.splitlines() if text and not text.startswith(" ")]
    assert [head.split(":")[0] for head in heads] == ["clean.jsonl", "faulty.jsonl"]


def test_recordings_in_folders_inside_are_named(clean, faulty, tmp_path):
    """They are another run's: not read, but said, since "nothing wrong" would be read as of all."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    faulty.rename(tmp_path / "deep" / "er" / "faulty.jsonl")
    done = ddtree("check", tmp_path, cwd=tmp_path, status=0)
    assert done.stdout.startswith("clean.jsonl: ")
    folder = tmp_path / "deep" / "er"
    assert done.stderr == f"{folder}: holds recordings too; they are not read unless it is named\n"
    assert ddtree("check", folder, cwd=tmp_path, status=1).stderr == ""


def test_empty_directory(tmp_path):
    done = ddtree("check", tmp_path, cwd=tmp_path, status=2)
    assert "expected 1 … 1024 files *.ddtree.arrow or *.jsonl, found 0" in done.stderr


@pytest.mark.parametrize("arguments", [["chek"], ["check"], ["check", "x", "--format", "xml"]])
def test_wrong_call(tmp_path, arguments):
    done = ddtree(*arguments, cwd=tmp_path, status=2)
    assert "Usage: ddtree" in done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt_prints_what_was_found(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text((line(FAULTY) + "\n") * 30_000)
    command = [sys.executable, "-c", ENTRY, "check", str(path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        time.sleep(3)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert out.startswith("long.jsonl: 1 cause in ")
    assert "stopped after" in err
    assert "Traceback" not in err


def test_import_is_light(tmp_path):
    code = (
        "import sys, workbench.cli\n"
        "heavy = {'torch', 'transformers', 'streamlit', 'plotly', 'pyarrow', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_locale_without_the_characters_gets_escapes_not_a_traceback(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(line(changed("inputs.positions", [9, 9, 9, 9])) + "\n")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "check", str(path)],
        capture_output=True,
        env={**os.environ, **plain},
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == b""
    assert b"\\xb7" in done.stdout
