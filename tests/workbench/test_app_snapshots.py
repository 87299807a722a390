"""Export and import of snapshots on the page. Run: pytest tests/workbench/test_app_snapshots.py."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from app_driver import open_app, params, words

from engine.checks.registry import check_trace
from engine.trace.reader import open_trace
from engine.trace.snapshot import export_snapshot
from workbench.snapshots_page import keep, size_text
from workbench.traces import imports_folder


@pytest.fixture
def snapshot(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    trace = open_trace(traces / "broken.ddtree.arrow")
    path = tmp_path_factory.mktemp("out") / "s.zip"
    export_snapshot(
        path, trace, [2], check_trace(trace).findings, selection="rank=0&step=2&request=r0&node=9"
    )
    return path.read_bytes()


def test_sizes_carry_units() -> None:
    assert [size_text(n) for n in (812, 14_200, 3_100_000)] == ["812 bytes", "14.2 kB", "3.1 MB"]


def test_export_says_what_goes_in_before_saving(traces: Path) -> None:
    at = open_app("snapshots", trace="broken", step=3)
    shown = words(at)
    assert "**What goes in:** step 3, with 1 more as context" in shown
    left_out = (
        "token texts, prompts and plain texts, command and notes \\(token ids are included\\)"
    )
    assert f"**What is left out:** {left_out}" in shown
    assert not at.toggle(key="snapshot text").value
    at.toggle(key="snapshot text").set_value(True).run()
    assert "look at them before you share the file" in words(at)
    assert "What is left out" not in words(at)


def test_export_of_faulty_steps_and_ranges(traces: Path) -> None:
    at = open_app("snapshots", trace="pair", step=2)
    at.radio(key="snapshot steps").set_value("first faulty step of each cause").run()
    assert "step 1, with 1 more as context" in words(at)
    at.radio(key="snapshot steps").set_value("a range of steps").run()
    assert "step 0, 1, 2;" in words(at)


def test_a_clean_recording_has_no_faulty_steps_to_export(traces: Path) -> None:
    at = open_app("snapshots", trace="clean")
    at.radio(key="snapshot steps").set_value("first faulty step of each cause").run()
    assert "No step is at fault" in words(at)


def test_an_imported_snapshot_is_shown_where_its_sender_looked(
    traces: Path, snapshot: bytes
) -> None:
    at = open_app("snapshots", trace="clean")
    at.file_uploader(key="snapshot upload").set_value(
        ("bug.zip", snapshot, "application/zip")
    ).run()
    assert not at.exception
    assert "findings recorded in it" in words(at)
    at.button(key="open import").click().run()
    found = params(at)
    assert found.pop("trace").startswith("bug-")
    assert found == {"rank": "0", "step": "2", "request": "r0", "node": "9"}
    assert "used for 17 rows" in at.error[0].value


@pytest.mark.parametrize(
    "data",
    [b"", b"no zip at all", b"PK\x03\x04 torn", b"\xff\xff\xff\xff" * 9],
    ids=["empty", "text", "torn", "arrow"],
)
def test_what_is_no_snapshot_is_refused_in_one_sentence(data: bytes, traces: Path) -> None:
    at = open_app("snapshots", trace="clean")
    at.file_uploader(key="snapshot upload").set_value(("bug.zip", data, "application/zip")).run()
    assert not at.exception
    errors = [error.value for error in at.error]
    assert len(errors) == 1
    assert "is not a snapshot that can be opened" in errors[0]
    assert "/tmp" not in errors[0]
    assert not list(imports_folder().glob("*.zip"))


def test_a_zip_that_climbs_out_writes_nothing(traces: Path, snapshot: bytes) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../../escaped.txt", "x")
    with pytest.raises(ValueError, match=r".+"):
        keep("../../evil.zip", buffer.getvalue())
    key, _ = keep("../../evil.zip", snapshot)
    assert key.startswith("evil-")
    assert [path.parent for path in imports_folder().glob("**/*.zip")] == [imports_folder()]
