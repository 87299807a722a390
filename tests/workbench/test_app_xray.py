"""The measured mask on the Mask diff page. Run: pytest tests/workbench/test_app_xray.py."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from app_driver import ROOT, figures, open_app, params, words
from tiny_runs import settings, tiny

from engine.checks.context import StepContext
from engine.decoding.session import run
from engine.trace import open_trace
from workbench.background import JobStore
from workbench.runs import RunStore


def said(at) -> str:
    return words(at).replace("\\", "")


PATIENCE = 60  # seconds


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, traces: Path) -> JobStore:
    made = JobStore()
    monkeypatch.setattr("workbench.background.store", lambda: made)
    monkeypatch.delenv("DDTREE_SGLANG_PATH", raising=False)
    return made


def finish(at, jobs: JobStore):
    """Run the page until no job is in progress."""
    begun = time.monotonic()
    while jobs.running():
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.1)
    return at.run()


def test_a_faulty_step_is_xrayed_and_compared(jobs: JobStore) -> None:
    at = open_app("mask_diff", trace="broken", step=3, kernel="addressed", right="measured:3:0:r0")
    assert "Step 3 was not X-rayed with the kernel addressed yet" in said(at)
    at.button(key="x-ray").click().run()
    at = finish(at, jobs)
    assert not at.exception
    shown = said(at)
    assert "metadata at fault: the buffer is right" in shown
    assert "intended = built ≠ addressed" in shown
    assert "= measured" in shown
    assert "missing in rows that no program covers" in shown  # intended against measured
    at.button(key="x-ray addressed").click().run()
    assert params(at)["left"] == "addressed:3:0:r0"
    assert "**No cell differs** in 680 cells" in said(at)


def test_it_is_kept_by_what_the_step_holds(jobs: JobStore) -> None:
    at = open_app("mask_diff", trace="clean", step=0, kernel="addressed")
    at.button(key="x-ray").click().run()
    at = finish(at, jobs)
    assert "clean: intended, built, addressed and measured agree" in said(at)
    assert at.button(key="x-ray").disabled
    again = open_app("mask_diff", trace="clean", step=0, kernel="addressed")
    assert again.button(key="x-ray").disabled
    other = open_app("mask_diff", trace="clean", step=1, kernel="addressed")
    assert not other.button(key="x-ray").disabled
    assert len(jobs._jobs) == 1


def test_what_cannot_be_xrayed_is_one_sentence(jobs: JobStore) -> None:
    at = open_app("mask_diff", trace="hostile", step=2, kernel="addressed")
    at.button(key="x-ray").click().run()
    at = finish(at, jobs)
    assert not at.exception
    assert "This step cannot be X-rayed: step 2: expected " in said(at)


def test_a_running_xray_can_be_stopped(jobs: JobStore) -> None:
    at = open_app("mask_diff", trace="broken", step=3)
    at.button(key="x-ray").click().run()
    assert at.button(key="stop x-ray")
    (job,) = jobs._jobs.values()
    job.stop()
    at = finish(at, jobs)
    assert "The X-ray was stopped." in said(at)
    assert not at.button(key="x-ray").disabled


def test_the_leak_mass_of_a_step_that_can_be_run_again(
    jobs: JobStore, traces: Path, monkeypatch
) -> None:
    runs = RunStore(tiny)
    monkeypatch.setattr("workbench.runs.store", lambda: runs)
    for name, fault in (("leaking", "sibling-leak"), ("tight", None)):
        target = runs.target(settings(), lambda *_: None)
        path = traces / f"{name}.ddtree.arrow"
        list(run(settings(fault=fault, topk=2), target, trace_path=path))
    step = next(n for n, s in enumerate(open_trace(traces / "leaking.ddtree.arrow")) if leaks(s))
    at = open_app("mask_diff", trace="leaking", step=step)
    at.button(key="leak").click().run()
    at = finish(at, jobs)
    assert not at.exception
    assert "attend to what they must not, at most 0." in said(at)
    assert any(part.get("name") == "leak" for figure in figures(at) for part in figure["data"])
    at = open_app("mask_diff", trace="tight", step=0)
    at.button(key="leak").click().run()
    assert "Leak mass: exactly 0 in every row, layer and head" in said(finish(at, jobs))


def leaks(step) -> bool:
    context = StepContext(step)
    return context.built_difference(0) is not None


def test_a_recording_without_prompts_offers_no_leak_mass(jobs: JobStore, traces: Path) -> None:
    at = open_app("mask_diff", trace=ROOT / "fixtures" / "example.jsonl")
    assert "X-ray this step" in [button.label for button in at.button]
    assert "Leak mass of this step" not in [button.label for button in at.button]


def test_a_step_whose_tokens_do_not_add_up_is_one_sentence(jobs: JobStore) -> None:
    at = open_app("mask_diff", trace="clean", step=0)
    at.button(key="leak").click().run()
    assert "This step cannot be run again: r0: expected 14 committed tokens" in said(
        finish(at, jobs)
    )
