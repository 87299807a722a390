"""The measured mask on the Mask diff page. Run: pytest tests/workbench/test_app_xray.py."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from app_driver import open_app, params, words

from workbench.xrays import XRayStore


def said(at) -> str:
    return words(at).replace("\\", "")


PATIENCE = 60  # seconds


@pytest.fixture
def xrays(monkeypatch: pytest.MonkeyPatch, traces: Path) -> XRayStore:
    made = XRayStore()
    monkeypatch.setattr("workbench.xrays.store", lambda: made)
    monkeypatch.setattr("workbench.panes.xray_pane.store", lambda: made)
    monkeypatch.delenv("DDTREE_SGLANG_PATH", raising=False)
    return made


def finish(at, xrays: XRayStore):
    """Run the page until no X-ray is in progress."""
    begun = time.monotonic()
    while any(job.state == "running" for job in xrays._jobs.values()):
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.1)
    return at.run()


def test_a_faulty_step_is_xrayed_and_compared(xrays: XRayStore) -> None:
    at = open_app("mask_diff", trace="broken", step=3, kernel="addressed", right="measured:3:0:r0")
    assert "Step 3 was not X-rayed yet" in said(at)
    at.button(key="x-ray").click().run()
    at = finish(at, xrays)
    assert not at.exception
    shown = said(at)
    assert "metadata at fault: the buffer is right" in shown
    assert "intended = built ≠ addressed" in shown
    assert "= measured" in shown
    assert "missing in rows that no program covers" in shown  # intended against measured
    at.button(key="x-ray addressed").click().run()
    assert params(at)["left"] == "addressed:3:0:r0"
    assert "**No cell differs** in 680 cells" in said(at)


def test_it_is_kept_by_what_the_step_holds(xrays: XRayStore) -> None:
    at = open_app("mask_diff", trace="clean", step=0, kernel="addressed")
    at.button(key="x-ray").click().run()
    at = finish(at, xrays)
    assert "clean: intended, built, addressed and measured agree" in said(at)
    assert at.button(key="x-ray").disabled
    again = open_app("mask_diff", trace="clean", step=0, kernel="addressed")
    assert again.button(key="x-ray").disabled
    other = open_app("mask_diff", trace="clean", step=1, kernel="addressed")
    assert not other.button(key="x-ray").disabled
    assert len(xrays._jobs) == 1


def test_what_cannot_be_xrayed_is_one_sentence(xrays: XRayStore) -> None:
    at = open_app("mask_diff", trace="hostile", step=2, kernel="addressed")
    at.button(key="x-ray").click().run()
    at = finish(at, xrays)
    assert not at.exception
    assert "This step cannot be X-rayed: step 2: expected " in said(at)


def test_a_running_xray_can_be_stopped(xrays: XRayStore) -> None:
    at = open_app("mask_diff", trace="broken", step=3)
    at.button(key="x-ray").click().run()
    assert at.button(key="stop x-ray")
    (job,) = xrays._jobs.values()
    job.stop()
    at = finish(at, xrays)
    assert "The X-ray was stopped." in said(at)
    assert not at.button(key="x-ray").disabled
