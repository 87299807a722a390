"""Reading a recording in the background, and what the app says meanwhile.

Run: pytest tests/workbench/test_app_loading.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from app_driver import CALM, PAGES, open_app, words
from sample import make_step

from engine.trace.errors import TraceFormatError
from engine.trace.json_codec import dumps
from engine.trace.reader import Trace, open_trace
from workbench import loading
from workbench.loaded import Loaded, ProgressFn
from workbench.loading import Reading, Shelf

STAMP = (0, 0)


def test_two_who_ask_share_one_reading(traces: Path) -> None:
    shelf, path = Shelf(), traces / "broken.ddtree.arrow"
    first, second = shelf.get(path, STAMP), shelf.get(path, STAMP)
    assert first is second
    assert first.wait(60)
    assert first.result().report.steps == 5
    assert (first.done, first.total) == (5, 5)
    assert shelf.get(path, (1, 1)) is not first  # the file changed


def test_what_cannot_be_read_is_tried_again(traces: Path) -> None:
    shelf, path = Shelf(), traces / "torn.ddtree.arrow"
    first = shelf.get(path, STAMP)
    assert first.wait(60)
    with pytest.raises(TraceFormatError):
        first.result()
    assert shelf.get(path, STAMP) is not first


def test_a_reading_that_nobody_waits_for_ends(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PATIENCE", -1.0)
    reading = Reading(traces / "broken.ddtree.arrow")
    reading.work()
    assert isinstance(reading.error, loading._Abandoned)
    assert reading.done == 1


def test_the_label_says_how_far_it_is() -> None:
    reading = Reading(Path("/r/a.ddtree.arrow"))
    assert reading.label == "Opening a.ddtree.arrow …"
    reading.done, reading.total = 1200, 10_000
    assert reading.label == "Checking a.ddtree.arrow: 1,200 of 10,000 steps …"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Recordings are read when the event is set."""
    go = threading.Event()

    class Slow(Loaded):
        def __init__(self, *arguments) -> None:
            go.wait(60)
            super().__init__(*arguments)

    monkeypatch.setattr(loading, "Loaded", Slow)
    shelf = Shelf()
    monkeypatch.setattr(loading, "_shelf", lambda: shelf)
    return go


def test_a_stopped_reading_leaves_a_sentence_and_a_way_back(
    traces: Path, slow: threading.Event
) -> None:
    slow.set()
    at = open_app("findings", trace="clean")
    at.session_state[loading.STOPPED] = str(traces / "clean.ddtree.arrow")
    at.run()
    assert not at.exception
    assert "reading it was stopped" in words(at)
    at.button(key="read on").click().run()
    assert "nothing wrong" in at.success[0].value


def test_a_long_reading_is_shown_and_its_result_replaces_it(
    traces: Path, slow: threading.Event
) -> None:
    threading.Timer(1.5, slow.set).start()
    at = open_app("findings", trace="clean")
    assert not at.exception
    assert "nothing wrong" in at.success[0].value
    assert not [b for b in at.button if b.label == "Stop"]


def test_the_header_and_the_findings_need_no_torch() -> None:
    """Its import takes longer than all others together; the folder is given, so that no model cache
    is asked.
    """
    program = (
        "import sys, workbench.current, workbench.header, "
        "workbench.findings_page, workbench.snapshots_page, workbench.mask_diff\n"
        "workbench.traces.traces_folder()\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"DDTREE_TRACES": "/nowhere", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]


class Changing(Loaded):
    """Reads slowly, and as often as it is read the file has changed meanwhile, as a live recording does."""

    def __init__(self, trace: Trace, progress: ProgressFn | None = None) -> None:
        time.sleep(1.0)
        super().__init__(trace, progress)
        os.utime(trace.path)


def test_a_recording_that_grows_while_it_is_read_is_read_once_a_run(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf()
    monkeypatch.setattr(loading, "_shelf", lambda: shelf)
    monkeypatch.setattr(loading, "Loaded", Changing)
    at = open_app("findings", trace="broken")
    assert not at.exception
    assert len(shelf._readings) == 1
    assert "1 cause · 15 findings" in words(at)


def test_two_long_readings_in_one_run_and_one_that_fails_late(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Loaded):
        def __init__(self, trace: Trace, progress: ProgressFn | None = None) -> None:
            time.sleep(0.6)
            if trace.path.name.startswith("clean"):
                raise MemoryError("no room")
            super().__init__(trace, progress)

    shelf = Shelf()
    monkeypatch.setattr(loading, "_shelf", lambda: shelf)
    monkeypatch.setattr(loading, "Loaded", Failing)
    at = open_app("mask_diff", trace="broken", left="intended:0:0:r0@pair")
    assert not at.exception
    for page in PAGES:
        at = open_app(page, trace="clean")
        assert not at.exception
        assert r"checking it failed \(MemoryError\: no room\)" in words(at)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in CALM])
def test_a_file_that_is_damaged_while_it_is_shown_gives_a_sentence(
    page: str, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the file and the reading of a step, so that no stamp tells."""
    path = traces / "pair.ddtree.arrow"
    monkeypatch.setattr(loading, "_stamp", lambda _: STAMP)
    at = open_app(page, trace="pair", step=0)
    assert not at.exception
    path.write_bytes(path.read_bytes()[:7000])
    for step in (3, 2):
        at.query_params["step"] = str(step)
        at.run()
        assert not at.exception
        assert "The recording changed while it was shown" in words(at)
    assert at.button(key="read again")


def test_go_to_first_survives_a_file_that_was_cut(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = traces / "pair.ddtree.arrow"
    loaded = Loaded(open_trace(path))
    finding = loaded.groups[0].first
    assert loaded.place_of(finding) == ("r0", 1)
    loaded._contexts.clear()
    path.write_bytes(path.read_bytes()[:7000])
    assert loaded.place_of(finding) == (finding.request, finding.where.node)


def test_a_step_of_a_file_that_is_gone_is_an_error_of_the_format(traces: Path) -> None:
    lines = traces / "lines.jsonl"
    lines.write_text(dumps(make_step(0)) + "\n")
    loaded = Loaded(open_trace(lines))
    lines.unlink()
    with pytest.raises(TraceFormatError, match="No such file"):
        loaded.step(0)


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_file_that_was_replaced_has_another_stamp(is_folder: bool, tmp_path: Path) -> None:
    """Of the same size and time, as ``cp -p`` makes it."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    path, other = folder / "a.jsonl", tmp_path / "b"
    for file in (path, other):
        file.write_text("same size")
        os.utime(file, ns=(1, 1))
    shown = folder if is_folder else path
    before = loading._stamp(shown)
    assert loading._stamp(shown) == before
    other.replace(path)
    assert loading._stamp(shown) != before


def test_one_who_comes_as_a_reading_is_given_up_gets_another(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, given_up = Shelf(), Reading(traces / "clean.ddtree.arrow")
    given_up.error = loading._Abandoned()
    given_up._over.set()
    asked = iter([given_up])
    monkeypatch.setattr(loading, "_shelf", lambda: shelf)
    get = shelf.get
    monkeypatch.setattr(shelf, "get", lambda *key: next(asked, None) or get(*key))
    assert loading.load(traces / "clean.ddtree.arrow").report.steps == 4
