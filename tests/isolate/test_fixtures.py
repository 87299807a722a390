"""The experiments that came along: their recordings say what their results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.checks.registry import check_trace
from engine.isolate.judge import judge
from engine.isolate.store import Store
from engine.trace import open_trace

LABS = Path(__file__).resolve().parents[2] / "fixtures" / "labs"
FOLDERS = [path for path in LABS.iterdir() if path.is_dir()]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_results_and_recordings_agree(folder: Path) -> None:
    store = Store.open(folder)
    assert store.left == []
    recorded = {path.name for path in store.traces.iterdir()}
    assert recorded == {m.trace for m in store.results.values()} - {None}
    for measured in store.results.values():
        if measured.error is None:
            report = check_trace(open_trace(store.traces / str(measured.trace)))
            assert sum((measured.findings or {}).values()) == len(report.causes)


def test_the_storys_verdict() -> None:
    store = Store.open(LABS / "story-verify-width")
    verdict = judge(store.experiment, store.results.values())
    assert (verdict.condition, [str(f) for f in verdict.factors]) == (
        "q_len ≠ block size 8",
        ["budget"],
    )
    assert verdict.missing == ()
    assert verdict.cause == "width-mismatch in 4 of 8 cells and in no other"
    assert {pair.broken.budget for pair in verdict.proof} == {4, 16}
