"""``ddtree explain`` through the console entry: texts, lists, JSON, unknown keys. Run: pytest tests/cli."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from engine.explain import explain, keys

ENTRY = "from workbench.cli import main; main()"


def ddtree(*arguments, columns=80, status=0):
    """Run the command as the console script does."""
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "explain", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": str(columns),
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("columns", [20, 80, 132])
def test_text_is_wrapped_to_the_terminal(columns):
    lines = ddtree("width-mismatch", columns=columns).stdout.splitlines()
    # a terminal narrower than 40 gets lines of 40
    assert all(len(line) <= max(columns, 40) for line in lines if "https://" not in line)
    assert " ".join(lines[:2]).startswith("width-mismatch: Backend's width is not the rows")
    joined = " ".join(" ".join(lines).split())
    for heading, text in explain("width-mismatch").parts:
        assert f"{heading} {text}" in joined
    assert "found by I1 row-extents, I4 mask-extents" in joined
    for report in explain("width-mismatch").reports:
        assert f"[{report.id}] {report.title} ({report.fault_class}, {report.grade.word})" in joined
        for link in report.links:
            assert link in [line.strip() for line in lines]


def test_a_check_lists_its_diagnoses():
    text = ddtree("mask-content").stdout
    assert text.startswith("I8 mask-content: ")
    for diagnosis in explain("I8").diagnoses:
        assert f"\n  {diagnosis} " in text


def test_several_keys_in_the_order_asked():
    text = ddtree("C13", "i8").stdout
    assert (
        text.index("C13 drafter context: ") < text.index("─" * 80) < text.index("I8 mask-content: ")
    )


def test_a_report_without_a_link_is_named():
    assert "xserv, commit 40d8a29" in ddtree("C7").stdout


def test_without_a_key_all_are_listed_one_line_each():
    lines = ddtree(columns=120).stdout.splitlines()
    first = [line.split()[0] for line in lines if line]
    assert set(keys()) <= set(first)
    at = lines.index(next(line for line in lines if line.startswith("I8 mask-content ")))
    assert lines[at + 1].startswith("  causal-mask ")
    assert "Classes of causes" in lines
    assert all(len(line) <= 120 for line in lines)


def test_json_is_one_object_a_line():
    lines = ddtree("I8", "bit-order", "--format", "json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        explain("I8").to_json(),
        explain("bit-order").to_json(),
    ]
    report = json.loads(ddtree("C13", "--format", "json").stdout)["reports"][0]
    assert list(report) == [
        *("id", "source", "links", "title", "class", "grade", "checks", "diagnoses", "fix")
    ]


def test_json_without_a_key_lists_all():
    listed = [json.loads(line) for line in ddtree("--format", "json").stdout.splitlines()]
    assert [entry["key"] for entry in listed] == list(keys())
    assert set(listed[0]) == {"key", "kind", "name", "title", "checks"}


@pytest.mark.parametrize(
    ("key", "near"), [("bit-ordr", "near: bit-order"), ("\x1b[2J", "lists all")]
)
def test_an_unknown_key_ends_with_status_2_and_one_line(key, near):
    done = ddtree("I8", key, status=2)
    assert done.stdout == ""
    assert near in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr


def test_it_starts_without_numpy():
    code = "import sys, engine.explain as e; e.explain('I8'); print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
