"""Reading a recording in the background, and what the app says meanwhile.

Run: pytest tests/workbench/test_app_loading.py.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from app_driver import open_app, words

from engine.trace.errors import TraceFormatError
from workbench import loading
from workbench.loaded import Loaded
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
