"""Runs in the background with a tiny random model. Run: pytest tests/workbench/test_app_runs.py."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from app_driver import figures, open_app, params, words
from tiny_runs import Letters, finished, settings

from engine.decoding.run_settings import RunSettings
from engine.models.catalog import Target
from engine.trace.reader import open_trace
from workbench import runs
from workbench.run_page import first_difference, marked
from workbench.runs import Job, RunStore, State, Written


def test_a_run_records_and_its_text_is_plain_decodings(store: RunStore) -> None:
    job = finished(store.start(settings()))
    assert job.state is State.FINISHED, job.error
    assert job.summary.lossless
    assert job.plain["r0"].tokens == job.tree["r0"].tokens
    assert len(open_trace(job.trace_path)) == len(job.bars) > 0


def test_two_runs_do_not_interfere(store: RunStore) -> None:
    alone = finished(store.start(settings(seed=3)))
    both = [
        store.start(settings(seed=3)),
        store.start(settings(prompts=("Other words", "And more"))),
    ]
    first, second = map(finished, both)
    assert first.tree == alone.tree
    assert set(second.tree) == {"r0", "r1"}
    assert first.trace_path != second.trace_path


def test_stopping_keeps_what_was_recorded(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = runs.run

    def slow(*arguments, **named):
        for event in real(*arguments, **named):
            time.sleep(0.02)
            yield event

    monkeypatch.setattr(runs, "run", slow)
    job = store.start(settings(max_new_tokens=200, drafter="prompt-lookup"))
    deadline = time.monotonic() + 60
    while len(job.bars) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    job.stop()
    finished(job)
    assert job.state is State.STOPPED
    assert 3 <= len(open_trace(job.trace_path)) < 200


def test_what_goes_wrong_is_one_sentence(store: RunStore) -> None:
    job = finished(store.start(settings(model="absent")))
    assert job.state is State.FAILED
    assert job.error.startswith("The model absent isn't here. Either give a folder, or")
    job = finished(store.start(settings(max_new_tokens=100_000)))
    assert "expected at most" in job.error


def test_the_page_starts_a_run_and_opens_its_recording(store: RunStore) -> None:
    at = open_app("run", trace="clean")
    assert "Nothing has run yet" in words(at)
    at.text_input[0].set_value("tiny")
    at.selectbox(key="drafter").set_value("oracle")
    at.number_input(key="budget").set_value(8)
    at.number_input(key="block size").set_value(4)
    at.number_input(key="new tokens").set_value(12)
    at.selectbox(key="fault").set_value("verify-width")
    at.button(key="start run").click().run()
    assert not at.exception
    job = finished(store.get(params(at)["run"]))
    assert job.settings.fault == "verify-width"
    at.run()
    assert not at.exception
    assert "**This run** · recording" in words(at)
    assert "steps at fault" in words(at)
    assert (
        "width 4" in at.error[0].value
    )  # the run's own verdict; that of the open recording is calm
    assert "Open recording: **clean** · ✓" in at.get("page_link")[0].proto.label
    assert "plain decoding" in words(at)
    assert any(part.get("name") == "accepted" for figure in figures(at) for part in figure["data"])
    at.button(key="open result").click().run()
    assert params(at)["trace"] == job.key
    assert "width 4" in at.error[0].value


def test_settings_that_make_no_sense_are_refused_on_the_page(store: RunStore) -> None:
    at = open_app("run", trace="clean")
    at.selectbox(key="fault").set_value("stale-mask")
    at.button(key="start run").click().run()
    assert any("needs replay mode" in error.value for error in at.error)
    assert not store.running()


def test_a_failed_run_shows_the_ways_out(store: RunStore) -> None:
    job = finished(store.start(settings(model="absent")))
    at = open_app("run", trace="clean", run=job.id)
    assert any(
        "Either give a folder, or a GGUF file, or download it" in error.value for error in at.error
    )


def test_the_first_difference_is_marked() -> None:
    target = Target("t", Path("t"), None, Letters())
    job = Job("j", settings(), Path("x"), target=target)
    plain, tree = (1, 2, 3), (1, 2, 4, 5)
    at = first_difference(plain, tree)
    assert at == 2
    assert marked(job, Written(tree, "BCEF"), at) == "BC⟦E⟧F"
    assert marked(job, Written(plain, "BCD"), at) == "BC⟦D⟧"
    assert first_difference((1, 2), (1, 2, 3)) is None


def test_a_second_start_while_a_run_goes_on_is_refused(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = Job("going", RunSettings(prompts=("a",)), Path("absent"))
    monkeypatch.setitem(store._jobs, "going", going)
    at = open_app("run", run="going")
    next(b for b in at.button if b.label == "Run").click().run()
    assert not at.exception
    assert "stop it first" in words(at)
    assert params(at)["run"] == "going"
    assert list(store._jobs) == ["going"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("prompts: too long"), "prompts: too long"),
        (OSError(28, "No space left on device", "/r/a"), "/r/a: No space left on device"),
        (RuntimeError("odd"), "RuntimeError: odd"),
    ],
)
def test_what_ends_a_run_is_said_in_words(error: Exception, said: str, traces: Path) -> None:
    def load(spec: str, progress) -> Target:
        raise error

    job = Job("x", RunSettings(prompts=("a",)), traces / "x.ddtree.arrow")
    job.work(load)
    assert (job.state, job.error) == (State.FAILED, said)
