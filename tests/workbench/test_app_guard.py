"""Never a traceback: what goes wrong while a page is drawn is one sentence.

Run: pytest tests/workbench/test_app_guard.py.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import app_driver
import numpy as np
import pytest
from app_driver import PAGES, ROOT, open_app, params, words
from sample import make_step
from streamlit.testing.v1 import AppTest
from tiny_runs import finished, settings

from engine.trace.errors import TraceFormatError
from engine.trace.header import TraceHeader
from engine.trace.writer import TraceWriter
from workbench import guard, header
from workbench.runs import RunStore, State


@pytest.fixture
def real_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it: the driver of these tests lets faults through."""
    monkeypatch.setattr(guard, "draw_failed", app_driver.real_draw_failed)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("error", [KeyError("<b>x</b>"), ZeroDivisionError(), OSError(5, "I/O")])
def test_a_fault_of_the_workbench_is_one_sentence(
    page: str,
    error: Exception,
    real_guard: None,
    traces: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(header, "_trace_picker", fail)
    with caplog.at_level(logging.ERROR, "workbench.guard"):
        at = open_app(page, trace="clean")
    assert not at.exception
    assert len(at.error) == 1
    assert "The rest of this page could not be drawn" in at.error[0].value
    assert "<b>" not in at.error[0].value
    assert type(error).__name__ in caplog.text  # with its traceback
    assert "Traceback" in caplog.text


def test_a_recording_that_changed_is_not_called_a_fault(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TraceFormatError("expected a step, found nothing", "a_b.jsonl")

    monkeypatch.setattr(header, "_trace_picker", fail)
    at = open_app(trace="clean")
    assert not at.exception
    assert "changed while it was shown" in at.warning[0].value
    assert at.button(key="read again")


def test_a_fault_while_a_run_is_followed_is_one_sentence(
    store: RunStore, real_guard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished(store.start(settings()))
    job.state = State.RUNNING

    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("workbench.run_page._draw_texts", fail)
    at = open_app("run", trace="clean", run=job.id)
    assert not at.exception
    assert "could not be drawn" in at.error[0].value


def test_a_name_that_is_given_twice_is_said(traces: Path) -> None:
    at = AppTest.from_file(str(ROOT / "workbench" / "app.py"), default_timeout=120)
    at.query_params["trace"] = "pair"
    at.query_params["step"] = ["0", "3", "1"]
    at.query_params["foo"] = ["1", "2"]
    at.run()
    assert not at.exception
    assert "step\\: expected once, found 3 times; the last one is used" in words(at)
    assert at.number_input(key="header step").value == 1
    at.number_input(key="header step").set_value(2).run()
    assert params(at)["step"] == "2"
    assert "expected once" not in words(at)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_what_of_the_selection_could_not_be_had(page: str, traces: Path) -> None:
    at = open_app(page, trace="pair", step="x")
    assert "step x is not in this recording; showing step 1" in words(at)


def test_a_run_that_nobody_knows_is_said(store: RunStore) -> None:
    at = open_app("run", trace="clean", run="**zz**" + "A" * 500)
    assert not at.exception
    assert "This server knows no run \\*\\*zz\\*\\*" in words(at)
    assert "A" * 100 not in words(at)
    assert "This server knows no run" not in words(open_app("run", trace="clean"))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"run_step": "-1"}, "run_step: expected a step of this request, 0 … "),
        ({"run_step": "9" * 400}, "run_step: expected a step of this request, 0 … "),
        ({"run_request": "r7"}, "run_request: expected a request of this run as r0, found 'r7'"),
    ],
    ids=["negative", "huge", "request"],
)
def test_a_place_in_a_run_that_is_not_there_is_said(
    query: dict[str, str], said: str, store: RunStore
) -> None:
    job = finished(store.start(settings()))
    at = open_app("run", trace="clean", run=job.id, **query)
    assert not at.exception
    plain = words(at).replace("\\", "")
    assert plain.count(said) == 1
    assert "it is ignored" not in words(open_app("run", trace="clean", run=job.id, run_step=0))


@pytest.mark.parametrize(
    ("width", "log_probs", "height"),
    [(1, [-1.0] * 500, 42 + 30 * 64), (3, [1e300, 5.0, -1.0], 72), (500, [-1.0] * 500, 72)],
    ids=["tall", "beyond 1", "wide"],
)
def test_a_recording_cannot_ask_for_a_figure_of_any_size(
    width: int, log_probs: list[float], height: int, traces: Path
) -> None:
    step = make_step(0)
    extras = replace(
        step.workbench,
        draft_width=width,
        draft_tokens=np.arange(len(log_probs)),
        draft_log_probs=np.array(log_probs),
    )
    with TraceWriter(traces / "drafts.ddtree.arrow", TraceHeader(created_by="sample")) as out:
        out.write(replace(step, workbench=extras))
    at = open_app(trace="drafts")
    assert not at.exception
    drawn = next(f for f in app_driver.figures(at) if f["data"][0].get("name") == "marginals")
    assert drawn["layout"]["height"] == height
    assert ("The first 64 of 500 depths are drawn" in words(at)) == (height > 1000)
